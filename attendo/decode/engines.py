"""Engines: textbook, cached and fast search over one network; retry with a smaller batch on OOM.

textbook    no cache, explicit attention: slow reference implementation
cached      KV cache that grows column by column; finished sentences are removed from the batch
fast        static shapes with slots that are reused; CUDA graphs on a GPU, torch.compile on request
"""

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Protocol, runtime_checkable
from weakref import WeakSet

import torch

from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.networks import TextbookNetwork
from attendo.decode.requests import DecodeRequest, FinishedBatch, length_batches, limit_tensors, pad_sources, split_runs
from attendo.decode.search import Rule, Seq2SeqNetwork, StaticNetwork, Strategy, search
from attendo.decode.static_batch import BatchShape, StaticBatch, round_up
from attendo.errors import MessagePart
from attendo.model.transformer import Transformer
from attendo.nn.devices import free_cached_memory, is_out_of_memory

# Widths of sources and answers in slots; above 1,024, multiples of 1,024.
BUCKET_WIDTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_MIN_FULL_BATCHES, _MAX_NARROW_WIDTH = 4, 64
_MAX_CACHED_BATCHES = 8  # cached batches for later requests of the same shape


@runtime_checkable
class Engine(Protocol):
    """Generates answers in any order, each as soon as it is finished."""

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        """Yield the answers to all requests, in batches."""


class TextbookEngine:
    def __init__(self, network: Transformer, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        textbook, device = TextbookNetwork(self._network), self._network.output.weight.device
        for group in length_batches(requests, attrgetter("num_positions"), self._batch_tokens // strategy.width):
            with torch.no_grad():
                state = textbook.start(*pad_sources(group, device))
            last = deque(search(textbook, state, limit_tensors(group, device), strategy, rules), maxlen=1).pop()
            yield FinishedBatch(group, last.hypotheses.cpu())


class CachedEngine:
    """Decodes with a growing KV cache. `padding` adds source columns, which must not change the answers."""

    def __init__(self, network: Seq2SeqNetwork, batch_tokens: int, padding: int = 0) -> None:
        self._weights, self._batch_tokens, self._padding = ColumnMajorWeights(network), batch_tokens, padding

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        for group in length_batches(requests, attrgetter("num_positions"), self._batch_tokens // strategy.width):
            yield from ContinuousBatch(self._weights, strategy, rules, len(group), self._padding).generate(group)


class FastEngine:
    """Decodes in static batches, which are cached because capture and compilation take longer than many answers.

    `max_sentences` limits the sentences per batch, however short they are.
    """

    def __init__(
        self, network: StaticNetwork, batch_tokens: int, compiled: bool = False, max_sentences: int = 1024
    ) -> None:
        self._network, self._compiled = network, compiled
        self._batch_tokens, self._max_sentences = batch_tokens, max_sentences
        self._cached_batches: dict[Hashable, StaticBatch] = {}

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        def most(source_width: int) -> int:
            return max(1, min(self._max_sentences, self._batch_tokens // (source_width * strategy.width)))

        for source_width, group in _width_batches(requests, most):
            capacity = round_up(max(request.max_length for request in group) + 2, BUCKET_WIDTHS)
            longest = max(len(request.prefix) for request in group)
            # Rounded up, so that others can reuse the graph.
            prefix_width = round_up(longest, BUCKET_WIDTHS) if longest else 0
            count = min(most(source_width), 1 << (len(group) - 1).bit_length())
            sizes = BatchShape(count, source_width, capacity, prefix_width)
            with self._borrow_batch(strategy, tuple(rules), sizes) as slots:
                yield from slots.generate(group)

    @contextmanager
    def _borrow_batch(self, strategy: Strategy, rules: tuple[Rule, ...], shape: BatchShape) -> Iterator[StaticBatch]:
        """Lend a batch to one caller at a time. A nested call gets its own batch."""
        key = (strategy, rules, shape)
        slots = self._cached_batches.pop(key, None) or StaticBatch(
            self._network, strategy, rules, shape, self._compiled
        )
        try:
            yield slots
        finally:
            self._cached_batches[key] = slots  # most recently used last; the first one is evicted
            if len(self._cached_batches) > _MAX_CACHED_BATCHES:
                del self._cached_batches[next(iter(self._cached_batches))]


def _width_batches(
    requests: Sequence[DecodeRequest], max_sentences: Callable[[int], int]
) -> Iterator[tuple[int, list[DecodeRequest]]]:
    """Group requests by source length, longest first. `max_sentences` is the batch size for a source width.

    The end of a group leaves slots empty, so a group is closed only when it fills several batches. A smaller group also
    includes shorter sources. Above a width of 64, sources under half the width start a new group.
    """

    def is_closed(group: list[DecodeRequest], request: DecodeRequest) -> bool:
        width, own = _source_width(group[0]), _source_width(request)
        is_full = len(group) >= _MIN_FULL_BATCHES * max_sentences(width)
        return own < width and (is_full or (width > _MAX_NARROW_WIDTH and 2 * own < width))

    longest_first = sorted(requests, key=lambda each: (-each.num_positions, -each.max_length))
    for group in split_runs(longest_first, is_closed):
        yield _source_width(group[0]), group


def _source_width(request: DecodeRequest) -> int:
    return round_up(request.num_positions, BUCKET_WIDTHS)


class ReducedBatchWarning(UserWarning):
    """Generation is slower because the batch was reduced for lack of memory."""


class OutOfMemoryRetry:
    """Retries generation with a smaller batch when memory runs out.

    `make_engine` creates an engine for a number of positions per batch: `batch_tokens`, then half of it, and so on.
    Finished answers are kept. Cached batches are released before the batch size is reduced. A size that works becomes
    the default. A failure does not affect later calls.
    """

    def __init__(self, make_engine: Callable[[int], Engine], batch_tokens: int) -> None:
        self._make_engine, self._batch_tokens = make_engine, batch_tokens
        self._engine: Engine | None = make_engine(batch_tokens)
        _INSTANCES.add(self)

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        waiting = {request.request_id: request for request in requests}
        engine = self._engine = self._engine or self._make_engine(self._batch_tokens)
        positions, keeps_nothing = self._batch_tokens, False
        while waiting:
            try:
                for answers in engine.generate([*waiting.values()], strategy, rules):
                    self._accept_size(engine, positions)
                    for request in answers.requests:
                        del waiting[request.request_id]
                    yield answers
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if keeps_nothing and positions <= 1:
                    error.add_note("one sentence at a time is too much: take a smaller beam, or the device cpu")
                    raise
            # The exception is cleared here, so its traceback no longer holds tensors.
            if waiting:
                positions = max(1, positions // 2) if keeps_nothing else positions
                engine, keeps_nothing = self._make_engine(positions), True
                _release_cached_engines()

    def _accept_size(self, engine: Engine, batch_tokens: int) -> None:
        """Make a size that fits the default, and warn if it is smaller."""
        wanted, self._batch_tokens, self._engine = self._batch_tokens, batch_tokens, engine
        if batch_tokens < wanted:
            message = MessagePart("batch_tokens_reduced", wanted=wanted, batch_tokens=batch_tokens)
            warnings.warn(str(message), ReducedBatchWarning, stacklevel=2)


_INSTANCES: WeakSet[OutOfMemoryRetry] = WeakSet()


def _release_cached_engines() -> None:
    """Release the cached batches of all models. A running call keeps its own engine."""
    for each in list(_INSTANCES):
        each._engine = None
    free_cached_memory()
