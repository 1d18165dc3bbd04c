"""Speculative decoding: a draft model proposes tokens, and the network verifies all of them in one pass.

Every position of a draft is treated as a row of an ordinary search, whose earlier tokens are those of the draft. Rules
and strategy choose the next token of all these rows at once. The first row that chooses another token than the draft is
the last one with the right history: its choice is kept and the rest of the draft is dropped. So the answer has the
tokens of the ordinary search, whatever the draft is. Only the number of passes depends on it.

A pass over several tokens takes about as long as a step of one token while reading the weights takes most of the time:
at a batch of one sentence. Larger batches gain nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.engines import BUCKET_WIDTHS, Engine
from attendo.decode.frontier import Frontier, RowLimits, map_tensors, zip_tensors
from attendo.decode.requests import DecodeRequest, FinishedBatch, encode_and_start, limit_tensors, pad_sources
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule, Strategy, apply_rules, run_step_hook
from attendo.decode.static_batch import BatchShape, CudaGraphRunner, round_up
from attendo.decode.strategies import Greedy
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

_MAX_GRAPHS = 16  # CUDA graphs that an engine keeps, one per shape
_MAX_CAPTURED_POSITIONS = 512  # longer targets have a KV cache
_MAX_PROPOSED = 64  # tokens verified in one pass; a wrong draft costs no more
_SEARCH_WINDOW = 4  # tokens of a draft in which the network's own token is searched


Propose = Callable[[Sequence[int]], list[int]]  # tokens, without EOS, that may follow the tokens of an answer so far


class Draft(ABC):
    """Proposes tokens. It has no state of a request, so that several may be decoded at a time."""

    @abstractmethod
    def start(self, request: DecodeRequest) -> Propose:
        """Return the proposals for a request. Only the last of the tokens that they get may differ from the draft."""


class ParallelDraft(Draft):
    """Drafts the whole answer in one call of an engine, that of a network that predicts all tokens at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(self, request: DecodeRequest) -> Propose:
        plain = replace(request, prefix=(), min_length=0)
        (answers,) = self._engine.generate([plain], Greedy(), [SuppressTokens()])
        ids = answers.hypotheses.ids[0, 1:].tolist()
        return AlignedDraft(list(takewhile(lambda token: token not in (EOS, PAD), ids))).propose


class AlignedDraft:
    """A draft of the whole answer, and the place in it that an answer has reached.

    After a different token, it goes on behind the same token if that is nearby, otherwise one token later.
    """

    def __init__(self, tokens: list[int]) -> None:
        self._tokens, self._used, self._before = tokens, 0, 0

    def propose(self, tokens: Sequence[int]) -> list[int]:
        if tokens:
            expected = self._used + len(tokens) - self._before - 1  # the token of the draft that was replaced
            nearby = self._tokens[expected : expected + _SEARCH_WINDOW]
            found = nearby.index(tokens[-1]) if tokens[-1] in nearby else 0
            self._used, self._before = expected + found + 1, len(tokens)
        return self._tokens[self._used :]


class AutoregressiveDraft(Draft):
    """Drafts the next `count` tokens by greedy search with a smaller network."""

    def __init__(self, network: Transformer, count: int = 5) -> None:
        self._network, self._count = network, count

    def start(self, request: DecodeRequest) -> Propose:
        reader = CachedReader(self._network, request)

        def propose(tokens: Sequence[int]) -> list[int]:
            found = list[int]()
            for _ in range(min(self._count, request.max_length - len(tokens))):
                ids = [BOS, *tokens, *found]
                logits = reader.read(ids, len(ids) - 1)[0, -1]
                logits[PAD] = logits[BOS] = float("-inf")
                if (token := int(logits.argmax())) == EOS:
                    break
                found.append(token)
            return found

        return propose


class CachedReader:
    """Reads the target of one sentence with a KV cache, again only from the first token that has changed."""

    def __init__(self, network: Transformer, request: DecodeRequest) -> None:
        self._network, self._ids = network, list[int]()
        self._state: DecoderState = encode_and_start(network, pad_sources([request], network.device)[0])

    def read(self, ids: Sequence[int], known: int) -> Float[Tensor, "1 W V"]:
        """Return the logits after these tokens, from number `known` on."""
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, self._ids, strict=False)))
        first = min(same, known)
        new = torch.tensor([ids[first:]], device=self._network.device)
        logits, self._state = self._network.step(new, self._state.truncate(first))
        self._ids = list(ids)
        return logits[:, known - first :]


class SpeculativeEngine:
    """Decodes sentence by sentence with drafts.

    `captured` reads the whole target in every pass, as a CUDA graph on a GPU. Otherwise there is a KV cache.
    """

    def __init__(self, network: Transformer, draft: Draft, captured: bool = False) -> None:
        self._network, self._draft, self._captured = network, draft, captured
        self._passes: dict[Hashable, CapturedPasses] = {}
        config = network.config
        self._max_positions = config.max_length if config.positions == "learned" else _MAX_CAPTURED_POSITIONS

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        for request in requests:
            with torch.no_grad():
                frontier = self._decode(request, strategy, tuple(rules))
            yield FinishedBatch([request], frontier)

    def _decode(self, request: DecodeRequest, strategy: Strategy, rules: tuple[Rule, ...]) -> Frontier:
        if not self._captured or max(len(request.source), request.max_length) + 2 > _MAX_CAPTURED_POSITIONS:
            return self._verify_all(request, _start_cached(self._network, request, strategy, rules))
        with self._borrow_passes(request, strategy, rules) as passes:
            passes.start(request)
            return self._verify_all(request, lambda tokens, new, _: passes.verify([BOS, *tokens, *new]))

    def _verify_all(self, request: DecodeRequest, verify: "Verify") -> Frontier:
        """Verify drafts until the answer is complete."""
        propose = self._draft.start(request)
        tokens, frontier = list[int](), None
        while frontier is None or bool(frontier.open):
            run_step_hook()
            new = list(request.prefix[len(tokens) :]) or propose(tokens)
            frontier = verify(tokens, new[: min(request.max_length - len(tokens), _MAX_PROPOSED)], frontier)
            tokens = frontier.ids[0, 1 : int(frontier.length) + 1].tolist()
        return frontier

    @contextmanager
    def _borrow_passes(
        self, request: DecodeRequest, strategy: Strategy, rules: tuple[Rule, ...]
    ) -> Iterator["CapturedPasses"]:
        """Lend the passes of a shape to one caller at a time."""
        source_width, capacity = (
            min(round_up(size, BUCKET_WIDTHS), self._max_positions + extra)
            for size, extra in ((request.source_length, 0), (request.max_length + 2, 1))
        )
        prefix_width = round_up(len(request.prefix), BUCKET_WIDTHS) if request.prefix else 0
        shape = BatchShape(1, source_width, capacity, prefix_width)
        key = (shape, strategy, rules)
        passes = self._passes.pop(key, None) or CapturedPasses(self._network, strategy, rules, shape)
        try:
            yield passes
        finally:
            self._passes[key] = passes  # most recently used last; the first one is evicted
            if len(self._passes) > _MAX_GRAPHS:
                del self._passes[next(iter(self._passes))]


# Verifies new tokens after known ones. The result of the call before is None at first.
Verify = Callable[[Sequence[int], Sequence[int], Frontier | None], Frontier]


def _start_cached(network: Transformer, request: DecodeRequest, strategy: Strategy, rules: tuple[Rule, ...]) -> Verify:
    reader, limits = CachedReader(network, request), limit_tensors([request], network.device)

    def verify(tokens: Sequence[int], new: Sequence[int], before: Frontier | None) -> Frontier:
        known, read = len(tokens), [BOS, *tokens, *new]
        ids = torch.tensor([[*read, *[PAD] * (limits.capacity - len(read))]], device=network.device)
        count = ids.new_tensor(len(read) - 1)
        found = verify_draft(reader.read(read, known), ids, count, limits, strategy, rules, known).cpu()
        if before is None:
            return found
        log_probability = before.log_probability + found.log_probability
        return replace(found, log_probability=log_probability, penalty=before.penalty + found.penalty)

    return verify


class CapturedPasses:
    """The passes of one sentence at fixed addresses: one of the encoder, and one of the decoder for each draft width.

    The decoder reads the whole target every time. On a GPU this takes no longer than reading the new tokens alone.
    """

    def __init__(self, network: Transformer, strategy: Strategy, rules: tuple[Rule, ...], shape: BatchShape) -> None:
        self._network, self._strategy, self._rules, self._shape = network, strategy, rules, shape
        source_width, capacity, prefix_width = shape.source_width, shape.capacity, shape.prefix_width
        device = network.device
        self._source = torch.zeros((1, source_width + 1), dtype=torch.long, device=device)  # ids and their number
        self._target = torch.zeros((1, capacity + 1), dtype=torch.long, device=device)
        self._limits = limit_tensors([DecodeRequest(0, (), capacity - 2)], device, prefix_width)
        self._state = network.allocate_state(1, source_width, 1, 1)
        self._encode = CudaGraphRunner(self._encode_source, device)
        self._found = Frontier.start(self._limits, capacity=capacity)
        self._found = map_tensors(self._found, torch.clone)  # each tensor needs its own memory
        self._decoders: dict[int, Callable[[], None]] = {}

    def start(self, request: DecodeRequest) -> None:
        ids, mask = pad_sources([request], torch.device("cpu"), self._shape.source_width)
        self._source.copy_(torch.cat((ids, mask.sum(-1, keepdim=True)), 1))
        new = limit_tensors([request], torch.device("cpu"), self._shape.prefix_width)
        zip_tensors(self._limits, new, lambda here, there: here.copy_(there))
        self._encode()

    def verify(self, ids: Sequence[int]) -> Frontier:
        """Return the row after the accepted tokens and one more, on the CPU."""
        self._target.copy_(torch.tensor([[*ids, *[PAD] * (self._shape.capacity - len(ids)), len(ids) - 1]]))
        width = min(round_up(len(ids), BUCKET_WIDTHS), self._shape.capacity - 1)
        if width not in self._decoders:
            self._decoders[width] = CudaGraphRunner(lambda: self._decode_target(width), self._network.device)
        self._decoders[width]()
        return map_tensors(self._found.cpu(), torch.clone)  # the next pass writes to the same memory

    def _encode_source(self) -> None:
        ids = self._source[:, :-1]
        mask = torch.arange(self._shape.source_width, device=ids.device) < self._source[:, -1:]
        start = encode_and_start(self._network, ids, mask)
        rows = torch.zeros(1, dtype=torch.long, device=ids.device)
        self._state.insert(rows, rows, start)

    def _decode_target(self, width: int) -> None:
        ids, count = self._target[:, :-1], self._target[0, -1]
        state = DecoderState(self._state.memory, self._state.memory_mask)
        logits, _ = self._network.step(ids[:, :width], state)
        found = verify_draft(logits, ids, count, self._limits, self._strategy, self._rules)
        zip_tensors(self._found, found, lambda here, there: here.copy_(there))


def verify_draft(
    logits: Float[Tensor, "1 W V"],
    ids: Int[Tensor, "1 C"],
    count: Int[Tensor, ""],
    limits: RowLimits,
    strategy: Strategy,
    rules: Sequence[Rule],
    first: int = 0,
) -> Frontier:
    """Return the row after the accepted tokens of a draft and the next token. Nothing here waits for the device.

    `ids` has BOS, `first` accepted tokens, and the draft, `count` tokens together. `logits[:, i]` follows token number
    `first` + i. The log-probability is that of the new tokens.
    """
    width, column = logits.size(1), torch.arange(ids.size(1), device=ids.device)
    length = first + torch.arange(width, device=ids.device)
    history = torch.where(column <= length[:, None], ids, PAD)
    rows = replace(Frontier.start(limits.repeat(width), capacity=ids.size(1)), ids=history, length=length)
    log_probs, ruled = apply_rules(logits[0], rows, strategy, rules)
    _, after = strategy.advance(rows, log_probs, ruled)
    following = (length + 1).clamp(max=ids.size(1) - 1)
    agrees = (after.ids.gather(1, following[:, None])[:, 0] == ids[0, following]) & after.open & (length < count)
    chosen = agrees.long().cumprod(0).sum(0, keepdim=True)
    totals = {name: getattr(after, name).cumsum(0)[chosen] for name in ("log_probability", "penalty")}
    return replace(after.select(chosen), **totals)
