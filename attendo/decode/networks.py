"""Networks for the search besides the plain one: ensembles, tapped networks, the uncached textbook network.

An ensemble combines the distributions of its members by one of two methods:

    probabilities    p(v) = sum over k of w_k p_k(v)
    logarithms       log p(v) = sum over k of w_k log p_k(v), renormalised

The weights w sum to 1. With probabilities, one confident network can select a token. With logarithms, one network that
gives it a very low probability can reject it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attendo.decode.search import Stepper
from attendo.errors import UsageError
from attendo.model.decoder_state import DecoderState, Memory
from attendo.model.edits import NetworkEdits
from attendo.model.head_scaling import ScaledHeads
from attendo.model.trace import decode_with_edits, encode_with_edits, read_row_with_edits
from attendo.model.transformer import Transformer
from attendo.nn.attention import Tap
from attendo.text import PAD

EnsembleMethod = Literal["probabilities", "logarithms"]


@dataclass(frozen=True)
class EnsembleState:
    """The states of all members, of any class."""

    members: tuple[Any, ...]

    def reorder(self, parents: Int[Tensor, " R"]) -> "EnsembleState":
        """Continue each row from its parent, a row of the same sentence."""
        return EnsembleState(tuple(each.reorder(parents) for each in self.members))

    def with_past_mask(self, is_token: Bool[Tensor, "R T"]) -> "EnsembleState":
        """Return the state with this mask for the positions read so far."""
        return EnsembleState(tuple(each.with_past_mask(is_token) for each in self.members))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "EnsembleState":
        """Keep only these sentences and rows."""
        return EnsembleState(tuple(each.select(sentences, rows) for each in self.members))

    def insert(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " M"], start: "EnsembleState") -> None:
        """Put new sentences into these slots in place."""
        for here, new in zip(self.members, start.members, strict=True):
            here.insert(sentences, rows, new)

    def write(self, after: "EnsembleState", rows: Bool[Tensor, " R"]) -> None:
        """Copy the state after a step into this one in place."""
        for here, new in zip(self.members, after.members, strict=True):
            here.write(new, rows)


class Ensemble:
    """An ensemble with the interface of one network. Members may differ in size and class, but must share token ids."""

    def __init__(
        self, steppers: Sequence[Stepper], weights: Sequence[float] | None = None, how: EnsembleMethod = "probabilities"
    ) -> None:
        if not steppers:
            raise UsageError("ensemble_empty")
        if how not in ("probabilities", "logarithms"):
            raise UsageError("unknown_ensemble_method", how=how)
        _check_vocabularies(steppers)
        self.members, self.how = tuple(steppers), how
        self.weights = _normalise_weights(weights, len(steppers))

    def encode(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None
    ) -> tuple[Memory, ...]:
        """Encode the source with each member. All members must be Transformers."""
        return tuple(each.encode(source_ids, source_mask) for each in self._networks())

    def start(self, memory: Sequence[Memory] | None = None) -> EnsembleState:
        """Return the state before the first step. Language models need no memory."""
        memories: Sequence[Memory | None] = [None] * len(self.members) if memory is None else memory
        return EnsembleState(tuple(each.start(memory) for each, memory in zip(self._networks(), memories, strict=True)))

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> EnsembleState:
        """Return a state of fixed size for each member."""
        return EnsembleState(
            tuple(each.allocate_state(sentences, source_width, width, capacity) for each in self._networks())
        )

    @property
    def device(self) -> torch.device:
        return self._networks()[0].device

    @property
    def continues_text(self) -> bool:
        """Whether the members have no sources. All or none have, because their source vocabularies have one size."""
        return self._networks()[0].continues_text

    def step(self, ids: Int[Tensor, "R T"], state: EnsembleState) -> tuple[Float[Tensor, "R T V"], EnsembleState]:
        """Return log-probabilities instead of logits. Their softmax is the distribution of the ensemble."""
        stepped = [member.step(ids, each) for member, each in zip(self.members, state.members, strict=True)]
        _check_equal_sizes([logits.size(-1) for logits, _ in stepped], "tokens in the logits")
        log_probs = [logits.float().log_softmax(-1) for logits, _ in stepped]
        if self.how == "probabilities":
            weighed = [each + math.log(weight) for each, weight in zip(log_probs, self.weights, strict=True)]
            together = torch.stack(weighed).logsumexp(dim=0)
        else:
            weighed = [each * weight for each, weight in zip(log_probs, self.weights, strict=True)]
            together = torch.stack(weighed).sum(dim=0)
        return together, EnsembleState(tuple(after for _, after in stepped))

    def _networks(self) -> list[Transformer]:
        networks = [each for each in self.members if isinstance(each, Transformer)]
        if len(networks) < len(self.members):
            kinds = sorted({type(each).__name__ for each in self.members} - {Transformer.__name__})
            raise UsageError("ensemble_member_without_encoder", kinds=", ".join(kinds))
        return networks


def _check_vocabularies(steppers: Sequence[Stepper]) -> None:
    """Check that the vocabulary sizes are equal. Callers with the tokenizers must compare the token pieces."""
    configs = [each.config for each in steppers if isinstance(each, Transformer)]
    _check_equal_sizes([config.target_vocab_size for config in configs], "tokens of the target vocabulary")
    _check_equal_sizes([config.source_vocab_size for config in configs], "tokens of the source vocabulary")


def _check_equal_sizes(sizes: Sequence[int | None], quantity: str) -> None:
    if len(set(sizes)) > 1:
        raise UsageError("ensemble_vocabulary_size_mismatch", quantity=quantity, sizes=", ".join(map(str, sizes)))


def _normalise_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    if weights is None:
        return (1 / count,) * count
    if len(weights) != count:
        raise UsageError("ensemble_weight_count_mismatch", members=count, weights=len(weights))
    for weight in weights:
        if not (math.isfinite(weight) and weight > 0):
            raise UsageError("ensemble_weight_not_positive", weight=weight)
    return tuple(weight / math.fsum(weights) for weight in weights)


class WrappedNetwork:
    """Base class of networks that change the steps of another one."""

    def __init__(self, network: Transformer) -> None:
        self.network = network

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def continues_text(self) -> bool:
        return self.network.continues_text

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        return self.network.encode(source_ids, source_mask)

    def start(self, memory: Memory | None = None) -> DecoderState:
        return self.network.start(memory)

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        return self.network.allocate_state(sentences, source_width, width, capacity)


class TappedNetwork(WrappedNetwork):
    """A network with a tap at every step. Search and scores use the weights that the tap returns."""

    def __init__(self, network: Transformer, tap: Tap) -> None:
        super().__init__(network)
        if isinstance(tap, ScaledHeads):
            tap.check(network.config)
        self.tap = tap

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        return self.network.encode(source_ids, source_mask, self.tap)

    def step(self, ids: Int[Tensor, "R T"], state: Any) -> tuple[Float[Tensor, "R T V"], Any]:
        return self.network.step(ids, state, tap=self.tap)


@dataclass(frozen=True)
class TextbookState:
    """The memory of each sentence, and all tokens of its rows."""

    memory: Memory
    ids: Int[Tensor, "R T"] | None = None

    def reorder(self, parents: Int[Tensor, " R"]) -> "TextbookState":
        assert self.ids is not None  # rows are reordered only after the first token
        return replace(self, ids=self.ids.index_select(0, parents))

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> "TextbookState":
        return TextbookState(
            self.memory.select(sentences), None if self.ids is None else self.ids.index_select(0, rows)
        )


class EditedNetwork(WrappedNetwork):
    """A network with edits. It computes the formulas of a trace for the whole target at every step, row by row.

    This is slow, and every edit has one place. A token that is not generated yet cannot be attended to.
    """

    def __init__(self, network: Transformer, heads: ScaledHeads, edits: NetworkEdits) -> None:
        super().__init__(network)
        heads.check(network.config)
        edits.check(network.config)
        self.heads, self.edits = heads, edits

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        if self.network.continues_text:
            return self.network.encode(source_ids[:, :0])
        padding = source_ids.new_full((self.edits.padding.tokens,), PAD)
        rows = [_select_tokens(ids, source_mask, row) for row, ids in enumerate(source_ids)]
        states = [self._encode(torch.cat((ids, padding))) for ids in rows]
        is_token = [torch.ones(len(each), dtype=torch.bool, device=each.device) for each in states]
        return Memory(pad_sequence(states, batch_first=True), pad_sequence(is_token, batch_first=True))

    def start(self, memory: Memory | None = None) -> Any:
        if memory is None:
            self.network.start()  # raises, unless it is a language model
            memory = Memory(torch.zeros(1, 0, self.network.config.d_model, device=self.device), None)
        return TextbookState(memory)

    def step(self, ids: Int[Tensor, "R T"], state: Any) -> tuple[Float[Tensor, "R T V"], Any]:
        all_ids = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        memory, logits = state.memory, []
        width = all_ids.size(0) // memory.states.size(0)
        for row, target in enumerate(all_ids):
            vectors = None
            if not self.network.continues_text:
                vectors = _select_tokens(memory.states[row // width], memory.mask, row // width).float()
            logits.append(self._decode(target, vectors))
        return torch.stack(logits)[:, -ids.size(1) :], replace(state, ids=all_ids)

    def _encode(self, source_ids: Int[Tensor, " S"]) -> Tensor:
        """Return what each step reads of a source: the vectors of the encoder, or of a prefix LM the ids [S, 1]."""
        if self.network.config.prefix_lm:
            return source_ids[:, None]
        return encode_with_edits(self.network, source_ids, self.heads, self.edits).to(self._dtype)

    def _decode(self, target_ids: Int[Tensor, " T"], source: Tensor | None) -> Float[Tensor, "T V"]:
        if source is not None and self.network.config.prefix_lm:
            return read_row_with_edits(self.network, source[:, 0].long(), target_ids, self.heads, self.edits)
        return decode_with_edits(self.network, target_ids, source, self.heads, self.edits)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self.network.output.weight.dtype, torch.float32)


def _select_tokens(values: Tensor, mask: Bool[Tensor, "B S"] | None, row: int) -> Tensor:
    """Drop the padding of a row of a batch."""
    return values if mask is None else values[mask[row]]


class TextbookNetwork:
    """A stepper for `search` without a cache. Every step reads the whole target."""

    def __init__(self, network: Transformer) -> None:
        self._network = network

    def start(self, source_ids: Int[Tensor, "B S"], mask: Tensor | None) -> TextbookState:
        if self._network.continues_text:
            return TextbookState(self._network.encode(source_ids[:, :0]))
        return TextbookState(self._network.encode(source_ids, mask, tap=force_explicit_attention))

    def step(self, ids: Int[Tensor, "R 1"], state: TextbookState) -> tuple[Float[Tensor, "R 1 V"], TextbookState]:
        all_ids = ids if state.ids is None else torch.cat((state.ids, ids), dim=1)
        logits, _ = self._network.step(all_ids, self._network.start(state.memory), tap=force_explicit_attention)
        return logits[:, -1:], replace(state, ids=all_ids)


def force_explicit_attention(site: str, weights: Tensor) -> None:
    """Do nothing. With any tap, the network uses the explicit formula instead of the fused kernel."""
