"""Trace of one forward pass: every tensor by name, with the pieces of its rows."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attendo.decode.config import GenerationConfig
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.model.edits import NetworkEdits
from attendo.model.head_scaling import HeadScales
from attendo.model.trace import trace_network
from attendo.model.trace_layers import TracedTensor, TraceRecorder
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, Tokenizer
from attendo.text.tokenizer import end_source, strip_line_end
from attendo.text_model.constraints import encode_prompt
from attendo.text_model.inputs import encode_symbols
from attendo.text_model.results import Hypothesis
from attendo.text_model.scoring import encode_pairs

if TYPE_CHECKING:
    from attendo.explore.saved_page import SavedPage

_WEIGHTS = re.compile(r"(encoder|decoder)\.(\d+)\.(self|cross)\.weights")
# Override the model's settings with greedy search, so that the probabilities of a step explain its token.
GREEDY_OPTIONS: dict[str, Any] = {
    "beam": 1,
    "beam_groups": 1,
    "sample": False,
    "mbr": "none",
    "coverage_penalty": 0.0,
    "split": False,
}


@dataclass(frozen=True)
class TokenCandidate:
    """A candidate for the next token."""

    piece: str
    id: int
    probability: float


@dataclass(frozen=True)
class TracedStep:
    """One prediction: the token, and the most probable candidates."""

    piece: str
    id: int
    probability: float
    log_probability: float
    rank: int  # 1 for the most probable token
    entropy: float  # in nats
    eos_probability: float
    top: tuple[TokenCandidate, ...]  # most probable first


@dataclass(frozen=True)
class SubLayerSizes:
    """Euclidean norms of the vectors around one sub-layer, averaged over the tokens."""

    place: str  # such as decoder.0.cross
    entering: float  # ‖x‖, of the residual stream
    adding: float  # ‖Sublayer(x)‖
    leaving: float  # ‖x + Sublayer(x)‖
    share: float  # ‖Sublayer(x)‖ / (‖x‖ + ‖Sublayer(x)‖)
    gain: float  # of the norm: ‖output‖ / ‖input‖


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Tensor]):
    """A mapping from names to tensors: `trace["decoder.0.cross.scores"]` is [H, T, S].

    Row t of the decoder predicts `target_pieces[t]` from `read_pieces` up to t. A decoder-only model reads its source
    or prompt in the same row: `first_row` is the number of these rows, which come first and predict nothing.
    """

    config: ModelConfig
    source_pieces: tuple[str, ...]  # eos included
    read_pieces: tuple[str, ...]  # decoder input: bos and the target shifted by one; decoder-only: the source first
    target_pieces: tuple[str, ...]  # predicted tokens, eos included unless the output was cut
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    entries: Mapping[str, TracedTensor] = field(repr=False)  # in order of computation
    tokenizer: Tokenizer = field(repr=False)  # of the target
    text: str = ""  # of the target
    given: bool = False  # True if the target was given, False if the model generated it
    unknown: tuple[str, ...] = ()  # parts of the source that are not in the vocabulary
    heads: HeadScales = field(default_factory=dict)  # scaled heads
    masked: bool = True  # whether the causal mask was applied
    origin: "TraceOrigin | None" = field(default=None, repr=False)

    def __repr__(self) -> str:
        tokens = f"{len(self.source_pieces)} source and {len(self.target_pieces)} target tokens"
        return f"<Trace of {self.text!r}: {tokens}, {len(self)} tensors by name>"

    def __getitem__(self, name: str) -> Tensor:
        return self.entries[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def with_operands(self, operations: Collection[str]) -> "Trace":
        """Trace again, so that these tensors keep their operands, weights included."""
        assert self.origin is not None
        assert self.origin.pair is not None
        network, pair, edits, layer = (getattr(self.origin, each.name) for each in fields(self.origin))
        return trace_pair(network, pair, self.heads, self.masked, layer, edits, operations)

    def show(self, language: Language = "en") -> "SavedPage":
        """Return the page of the whole network with this pass, in one file. A notebook displays it, offline."""
        from attendo.explore.saved_page import SavedPage

        return SavedPage.of(self, language)

    @property
    def first_row(self) -> int:
        """The row of the decoder that predicts the first target token. It is 0 for a model with an encoder."""
        return len(self.source_pieces) if self.config.decoder_only else 0

    @property
    def row_pieces(self) -> tuple[str, ...]:
        """Label of each row of the decoder: the token that it predicts, or the source token that it reads."""
        return (*self.read_pieces[: self.first_row], *self.target_pieces)

    @property
    def causal_mask(self) -> Bool[Tensor, "R R"]:
        """Which tokens each row of the decoder may look at. Under the mask of a prefix LM, all rows see the source."""
        visible = torch.ones(len(self.read_pieces), len(self.read_pieces), dtype=torch.bool).tril()
        if self.config.prefix_lm:
            visible[:, : self.first_row] = True
        return visible

    @property
    def encoder_layers(self) -> tuple[int, ...]:
        """The traced layers: all, unless one was selected."""
        return self._layers("encoder")

    @property
    def decoder_layers(self) -> tuple[int, ...]:
        return self._layers("decoder")

    @property
    def is_recurrent(self) -> bool:
        """Whether the decoder has a recurrence in place of self-attention. Its weights are measured shares."""
        return self.config.autoregression == "ssru"

    @property
    def encoder_self(self) -> Float[Tensor, "E H S S"]:
        return self._stack_weights("encoder", "self")

    @property
    def decoder_self(self) -> Float[Tensor, "L H T T"]:
        """The weights of the target. Those of merged attention sum to 1 with `cross`."""
        weights = self._stack_weights("decoder", "self")
        return weights[..., len(self.source_pieces) :] if self.config.merged_attention else weights

    @property
    def cross(self) -> Float[Tensor, "L H T S"]:
        """The weights of the source: of cross-attention, or the first columns of merged attention."""
        if self.config.merged_attention:
            return self._stack_weights("decoder", "self")[..., : len(self.source_pieces)]
        return self._stack_weights("decoder", "cross")

    @property
    def logits(self) -> Float[Tensor, "T V"]:
        return self["output.logits"]

    @property
    def probabilities(self) -> Float[Tensor, "T V"]:
        return self["output.probabilities"]

    @property
    def log_probabilities(self) -> Float[Tensor, " T"]:
        """Log-probabilities of the target tokens."""
        labels = torch.tensor(self.target_ids)[:, None]
        return self.logits.log_softmax(-1).gather(-1, labels)[:, 0]

    @property
    def loss(self) -> float:
        """Cross-entropy per target token: −1/m ∑ log p(yₜ | y₍<ₜ₎, x)."""
        return -float(self.log_probabilities.mean())

    @property
    def entropy(self) -> Float[Tensor, " T"]:
        """Entropy of each distribution, in nats."""
        return -torch.special.xlogy(self.probabilities, self.probabilities).sum(dim=-1)

    @property
    def eos_probability(self) -> Float[Tensor, " T"]:
        return self.probabilities[:, EOS]

    def steps(self, count: int = 5) -> list[TracedStep]:
        """Return every prediction with its `count` most probable tokens."""
        best = self.probabilities.topk(min(count, self.probabilities.size(-1)), dim=-1)
        labels = torch.tensor(self.target_ids)[:, None]
        ranks = (self.probabilities > self.probabilities.gather(-1, labels)).sum(dim=-1) + 1
        log_probabilities, entropy = self.log_probabilities.tolist(), self.entropy.tolist()
        found = []
        for t, (piece, token) in enumerate(zip(self.target_pieces, self.target_ids, strict=True)):
            ids = best.indices[t].tolist()
            top = zip(self.tokenizer.pieces(ids), ids, best.values[t].tolist(), strict=True)
            found.append(
                TracedStep(
                    piece=piece,
                    id=token,
                    probability=float(self.probabilities[t, token]),
                    log_probability=log_probabilities[t],
                    rank=int(ranks[t]),
                    entropy=entropy[t],
                    eos_probability=float(self.eos_probability[t]),
                    top=tuple(TokenCandidate(*each) for each in top),
                )
            )
        return found

    def as_json(self, count: int = 10) -> dict[str, Any]:
        """Return plain values: numbers rounded to 6 digits, tensors as nested lists, −∞ as None.

        Each step has its `count` most probable tokens.
        """
        return {
            "config": self.config.model_dump(),
            "text": self.text,
            "given": self.given,
            "masked": self.masked,
            "heads": {site: {str(head): scale for head, scale in each.items()} for site, each in self.heads.items()},
            "unknown": list(self.unknown),
            "source": {"pieces": list(self.source_pieces), "ids": list(self.source_ids)},
            "read": {"pieces": list(self.read_pieces)},
            "predicted": {"pieces": list(self.target_pieces), "ids": list(self.target_ids)},
            "layers": {"encoder": list(self.encoder_layers), "decoder": list(self.decoder_layers)},
            "loss": round_values(self.loss),
            "log_probability": round_values(float(self.log_probabilities.sum())),
            "steps": [round_values(asdict(each)) for each in self.steps(count)],
            "sizes": [round_values(asdict(each)) for each in self.sizes()],
            "tensors": [
                {"name": each.name, "formula": each.formula, "shape": list(each.shape), "values": _to_list(each.value)}
                for each in self.entries.values()
            ],
        }

    def sizes(self) -> list[SubLayerSizes]:
        """Return the norms of every traced sub-layer, in order of computation."""
        return [self._sizes(name.removesuffix(".residual")) for name in self.entries if name.endswith(".residual")]

    def _sizes(self, sublayer: str) -> SubLayerSizes:
        after, made, normed = (self[f"{sublayer}.{each}"] for each in ("residual", "output", "norm"))
        made = self.get(f"{sublayer}.normed_output", made)
        before = after - made
        into_norm = after if self.config.norm == "post" else before
        entering, adding, leaving = (each.norm(dim=-1) for each in (before, made, after))
        return SubLayerSizes(
            sublayer,
            entering=float(entering.mean()),
            adding=float(adding.mean()),
            leaving=float(leaving.mean()),
            share=float((adding / (entering + adding).clamp(min=1e-12)).mean()),
            gain=float((normed.norm(dim=-1) / into_norm.norm(dim=-1).clamp(min=1e-12)).mean()),
        )

    def _layers(self, stack: str) -> tuple[int, ...]:
        found = [_WEIGHTS.fullmatch(name) for name in self.entries]
        return tuple(int(each[2]) for each in found if each and (each[1], each[3]) == (stack, "self"))

    def _stack_weights(self, stack: str, attention: str) -> Float[Tensor, "L H T S"]:
        names = [f"{stack}.{n}.{attention}.weights" for n in self._layers(stack)]
        layers = [self[name] for name in names if name in self.entries]  # a decoder-only network has no cross-attention
        if layers:
            return torch.stack(layers)
        rows = len(self.source_pieces) if stack == "encoder" else len(self.read_pieces)
        columns = len(self.source_pieces) if attention == "cross" or stack == "encoder" else rows
        return torch.zeros(0, self.config.num_heads, rows, columns)


def _to_list(tensor: Tensor) -> Any:
    return tensor.tolist() if not tensor.is_floating_point() else round_values(tensor.double().tolist())


def round_values(value: Any) -> Any:
    """Round to six significant digits. Infinity becomes None, because JSON has no infinity."""
    match value:
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else None
        case dict():
            return {key: round_values(each) for key, each in value.items()}
        case list() | tuple():
            return [round_values(each) for each in value]
    return value


@dataclass(frozen=True)
class EncodedPair:
    """A source and a target as ids, with their tokenizers. The source of a language model is a prompt, or empty."""

    source: Sequence[int]  # eos included, and symbols after it
    target: Sequence[int]  # predicted tokens, eos included unless the output was cut
    source_tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer
    given: bool
    unknown: Sequence[str]

    @staticmethod
    def encode(
        text: str, output: str | Hypothesis, config: GenerationConfig, source: Tokenizer | None, target: Tokenizer
    ) -> "EncodedPair":
        """Encode a text and its output, which is a given text or a hypothesis.

        A language model has no source tokenizer (None). Its source is the text, and a given output has no eos.
        """
        if source is None:
            return _encode_running_text(text, output, config, target)
        symbols = encode_symbols(config, source, target)
        text, given = strip_line_end(text), isinstance(output, str)
        answer = (*symbols.begin, *target.encode(strip_line_end(output))) if isinstance(output, str) else output.ids
        # A cut output has no eos: its last token is the last row.
        ends = isinstance(output, str) or output.has_end
        ids = end_source(symbols.wrap_source(source.encode(text))), (*answer, *((EOS,) if ends else ()))
        return EncodedPair(*ids, source, target, given, source.unknown(text))


@dataclass(frozen=True)
class TraceOrigin:
    """What a trace was computed from, besides its heads and its mask."""

    network: Transformer
    pair: EncodedPair | None = None  # None for a network that predicts all tokens at once
    edits: NetworkEdits | None = None
    layer: int | None = None


def trace_pair(
    network: Transformer,
    pair: EncodedPair,
    heads: HeadScales,
    masked: bool,
    layer: int | None,
    edits: NetworkEdits | None = None,
    inputs_of: Collection[str] = (),
) -> Trace:
    """Trace the forward pass that predicts this target from this source."""
    source, read = list(pair.source), [BOS, *pair.target[:-1]]
    tokenizer = pair.source_tokenizer or pair.target_tokenizer
    source_pieces = tuple(tokenizer.pieces(source))
    row = (*source_pieces, *pair.target_tokenizer.pieces(read)) if network.config.prefix_lm else None
    prompt = source if network.continues_text else []
    read[1:1] = prompt
    source_ids, target_ids = (torch.tensor(each, device=network.device) for each in (source, read))
    entries = trace_network(
        network,
        None if network.continues_text else source_ids,
        target_ids,
        heads,
        masked,
        TraceRecorder(layer, edits, inputs_of),
        len(prompt),
    )
    return Trace(
        config=network.config,
        source_pieces=source_pieces,
        read_pieces=row or tuple(pair.target_tokenizer.pieces(read)),
        target_pieces=tuple(pair.target_tokenizer.pieces(list(pair.target))),
        source_ids=tuple(pair.source),
        target_ids=tuple(pair.target),
        entries={name: move_to_cpu(each) for name, each in entries.items()},
        tokenizer=pair.target_tokenizer,
        text=pair.target_tokenizer.decode(list(pair.target)),
        given=pair.given,
        unknown=tuple(pair.unknown),
        heads=heads,
        masked=masked,
        origin=TraceOrigin(network, pair, edits, layer),
    )


def _encode_running_text(
    text: str, output: str | Hypothesis, config: GenerationConfig, tokenizer: Tokenizer
) -> "EncodedPair":
    """Encode the text as the source and what follows it as the target. If nothing follows, the text is the target."""
    given = isinstance(output, str)
    end: tuple[int, ...] = ()
    if isinstance(output, str):
        (pair,) = encode_pairs([text], [output], config, None, tokenizer)
        source, target, read = pair.source, pair.target, text + output
    else:
        begin = encode_symbols(config, tokenizer, tokenizer).begin
        count = len(begin) + len(encode_prompt(tokenizer, text))
        source, target, read = output.ids[:count], output.ids[count:], text
        end = (EOS,) if output.has_end else ()
    if not (target or end):
        source, target = (), source
    return EncodedPair(tuple(source), (*target, *end), None, tokenizer, given, tokenizer.unknown(read))


def merge_head_scales(first: HeadScales, second: HeadScales) -> dict[str, dict[int, float]]:
    """Merge both. The second wins for the same head."""
    return {site: {**first.get(site, {}), **second.get(site, {})} for site in {**first, **second}}


def move_to_cpu(each: TracedTensor) -> TracedTensor:
    """Return the tensor and its operands on the CPU."""
    if each.value.device.type == "cpu":
        return each
    return replace(each, value=each.value.cpu(), inputs=tuple(operand.cpu() for operand in each.inputs))
