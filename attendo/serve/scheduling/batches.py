"""Batch groups: requests with the same batch key that are decoded in one running batch."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

import torch

from attendo.decode.config import GenerationConfig
from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.frontier import Frontier
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy
from attendo.decode.static_batch import BatchShape, StaticBatch
from attendo.model.transformer import Transformer
from attendo.nn.devices import free_cached_memory, is_out_of_memory
from attendo.serve.scheduling.jobs import ScheduledJob
from attendo.text_model import Result, TextModel
from attendo.text_model.generation import PreparedCall
from attendo.text_model.search_setup import with_coverage

_log = logging.getLogger("attendo.serve")
_SOURCE_WIDTHS = (32, 128, 512, 2048)  # of sources that are answered together; then by the 2048
_PREFIX_WIDTHS = (0, 8, 64, 512)
_MAX_CONTINUOUS_ROWS = 8  # of a sentence, that a crowd is faster with
_CPU_BATCH_SIZE, _GPU_BATCH_SIZE = 32, 128  # sentences side by side
_GPU_PEEK_INTERVAL = 4  # on a GPU, where a look waits for all that was asked of it before


class RunningBatch(Protocol):
    """What answers sentences step by step."""

    @property
    def busy(self) -> bool: ...

    @property
    def num_free(self) -> int: ...

    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]: ...

    def cancel(self, request_ids: Collection[int] | None = None) -> None: ...

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]: ...


@dataclass(frozen=True)
class BatchKey:
    """Requests of the same kind can be answered side by side."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    network_key: tuple[str, bool, bool]  # precision, whether attention is kept count of, whether it is compiled
    max_positions: int  # of sources side by side, once for each row
    source_width: int  # that sources are rounded up to; answers have twice as many tokens at most
    prefix_width: int


class BatchFactory:
    """Knows the model."""

    def __init__(self, model: TextModel, max_batch_size: int | None = None, static_shapes: bool | None = None) -> None:
        """`most` sentences side by side. `static_shapes`: slots also on a CPU."""
        self._model, self._on_gpu = model, model.device.type == "cuda"
        self.max_batch_size = max_batch_size or (_GPU_BATCH_SIZE if self._on_gpu else _CPU_BATCH_SIZE)
        self._static_shapes = self._on_gpu if static_shapes is None else static_shapes
        self._networks: dict[tuple[str, bool, bool], Seq2SeqNetwork] = {}
        self._cpu_weights: dict[tuple[str, bool, bool], ColumnMajorWeights] = {}

    @property
    def peek_interval(self) -> int:
        return _GPU_PEEK_INTERVAL if self._on_gpu else 1

    @property
    def supports_batching(self) -> bool:
        """Exported models have none: they answer call after call."""
        return self._model.runtime.name == "torch"

    def can_batch(self, call: PreparedCall) -> bool:
        return self.supports_batching and call.is_single_search

    def split_by_key(self, call: PreparedCall) -> Iterator[tuple[BatchKey, DecodeRequest]]:
        """Of every line; a line that is there twice is told once."""
        requests, strategy, rules = call.prepare_search()
        config = call.config
        network = (config.precision, config.coverage_penalty > 0, config.compile)
        self._prepare_network(config, network)
        for request in dict.fromkeys(requests):
            width = _round_up(max(len(request.source) + 1, request.max_length // 2), _SOURCE_WIDTHS)
            prefix = _round_up(len(request.prefix), _PREFIX_WIDTHS)
            yield (
                BatchKey(strategy, tuple(rules), network, config.resolve_batch_tokens(self._on_gpu), width, prefix),
                request,
            )

    def make(self, key: BatchKey) -> RunningBatch:
        """As many as there is memory for."""
        width = key.strategy.width
        most = max(1, min(self.max_batch_size, key.max_positions // (key.source_width * width)))
        while True:
            try:
                return self._build(key, most)
            except (RuntimeError, MemoryError) as error:
                if most == 1 or not is_out_of_memory(error):
                    raise
            _log.warning("memory does not suffice for %d sentences side by side: making do with %d", most, most // 2)
            most //= 2
            free_cached_memory()

    def _build(self, key: BatchKey, batch_size: int) -> RunningBatch:
        network, width = self._networks[key.network_key], key.strategy.width
        if not self._static_shapes and isinstance(network, Transformer) and width <= _MAX_CONTINUOUS_ROWS:
            layout = self._cpu_weights.setdefault(key.network_key, ColumnMajorWeights(network))
            return ContinuousBatch(layout, key.strategy, key.rules, batch_size)
        sizes = BatchShape(batch_size, key.source_width, 2 * key.source_width + 4, key.prefix_width)
        return StreamingStaticBatch(network, key.strategy, key.rules, sizes, compiled=key.network_key[2])

    def _prepare_network(self, config: GenerationConfig, key: tuple[str, bool, bool]) -> None:
        if key not in self._networks:
            reader = self._model.runtime.network(config)
            assert reader is not None  # torch tells the logits
            self._networks[key] = with_coverage(config, reader)


class StreamingStaticBatch(StaticBatch):
    """Slots that can be looked into while they work."""

    @property
    def num_free(self) -> int:
        """Sentences that may come in."""
        return sum(each is None for each in self._requests)

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]:
        """How far these requests have come. A GPU is waited for."""
        for slot, request in enumerate(self._requests):
            if request is not None and request.request_id in request_ids:
                place = torch.tensor([slot], device=self._frontier.ids.device)
                yield request, self._frontier.select_sentences(place).cpu()


def _round_up(width: int, widths: tuple[int, ...]) -> int:
    return next((each for each in widths if each >= width), -(-width // widths[-1]) * widths[-1])


class PendingResponse:
    """What one job is told: all results together when the last one is found, or one text as it is decided."""

    def __init__(self, job: ScheduledJob, call: PreparedCall, streamed: bool) -> None:
        self.job, self._call = job, call
        self._order = call.prepare_search()[0]
        self.pending = set(self._order)
        self._results: dict[DecodeRequest, Result] = {}
        self._stream_decoder = call.make_stream_decoder() if streamed else None

    @property
    def streamed(self) -> bool:
        return self._stream_decoder is not None

    def send_new_text(self, frontier: Frontier) -> None:
        if self._stream_decoder is not None and (new := self._stream_decoder.push(frontier)):
            self.job.send_chunk(new)

    def add_result(self, request: DecodeRequest, hypotheses: Frontier) -> None:
        self.pending.discard(request)
        self._results[request] = self._call.to_result(hypotheses)
        if not self.pending:
            self.finish()

    def finish(self) -> None:
        results = self._call.collect_results([self._results[request] for request in self._order])
        if self._stream_decoder is not None and (rest := self._stream_decoder.flush(results[0].text)):
            self.job.send_chunk(rest)
        self.job.finish(results)


class BatchGroup:
    """Makes its seats when they are needed. The same request of several jobs is answered once."""

    def __init__(self, make_batch: Callable[[], RunningBatch], peek_interval: int = 1) -> None:
        self._make_batch, self._peek_interval = make_batch, peek_interval
        self._batch: RunningBatch | None = None
        self._waiting: deque[DecodeRequest] = deque()
        self._suspects: deque[deque[DecodeRequest]] = deque()  # that are answered apart, after trouble in the seats
        self._responses: dict[DecodeRequest, list[PendingResponse]] = {}
        self._steps = 0
        self._batch_size = 0  # of the seats
        self._num_free: int | None = None
        self.closing = False  # takes nobody in until it is empty

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return self._is_running or bool(self._suspects) or (bool(self._waiting) and not self.closing)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def num_running(self) -> int:
        """Sentences; from any thread."""
        return max(0, len(self._responses) - len(self._waiting))

    @property
    def num_free(self) -> int | None:
        """Seats that nobody has; None as long as there are none. From any thread."""
        return 0 if self.closing else self._num_free

    @property
    def num_used(self) -> int:
        """Seats that somebody has; from any thread."""
        free = self._num_free  # looked at once: the thread that steps may change it
        return 0 if free is None else self._batch_size - free

    @property
    def _is_running(self) -> bool:
        return self._batch is not None and self._batch.busy

    def add(self, request: DecodeRequest, response: PendingResponse) -> None:
        if request in self._responses:
            if request not in self._waiting:
                response.job.start()
            self._responses[request].append(response)
            return
        self._responses[request] = [response]
        self._waiting.append(request)

    def remove(self, response: PendingResponse) -> None:
        """Nobody listens to it any more."""
        for request in response.pending & self._responses.keys():
            others = [each for each in self._responses[request] if each is not response]
            if others:
                self._responses[request] = others
            else:
                self._drop([request])

    def step(self) -> None:
        """One more token for everybody who is seated."""
        feed = self._input_queue
        before = [*feed]
        try:
            if self._batch is None:
                self._batch = self._make_batch()
                self._batch_size = self._batch.num_free
            answers = [*self._batch.step(feed)]
        except Exception as error:  # whatever it is, the others are to be answered
            self._bisect_failure(error)
            return
        for request in before[: len(before) - len(feed)]:
            for reply in self._responses[request]:
                reply.job.start()
        # When those are counted as seated who have begun, not before: as long as they wait, their seats are free. And
        # before anybody hears an answer: whoever asks again at once is to find the seat free.
        self._num_free = self._batch.num_free
        for each in answers:
            for request, hypotheses in each.split():
                self._deliver(request, hypotheses)
        if self._suspects and not self._suspects[0] and not self._is_running:
            self._suspects.popleft()
        self._peek()

    @property
    def _input_queue(self) -> "deque[DecodeRequest]":
        """Whom the seats may take in."""
        if self._suspects:
            return self._suspects[0]
        return deque() if self.closing else self._waiting

    def _deliver(self, request: DecodeRequest, hypotheses: Frontier) -> None:
        for reply in self._responses.pop(request, ()):
            _fail_on_error(reply, partial(reply.add_result, request, hypotheses))

    def _peek(self) -> None:
        """What is decided of those who want to hear it at once."""
        self._steps += 1
        if self._batch is None or self._steps % self._peek_interval:
            return
        numbers = {
            request.request_id for request, each in self._responses.items() if any(reply.streamed for reply in each)
        }
        if not numbers:
            return
        for request, frontier in self._batch.peek(numbers):
            for reply in self._responses.get(request, ()):
                _fail_on_error(reply, partial(reply.send_new_text, frontier))

    def _bisect_failure(self, error: Exception) -> None:
        """Whose fault it was is found by halves: everybody else is answered, from the start."""
        queued = {*self._waiting, *chain(*self._suspects)}
        seated = [request for request in self._responses if request not in queued] or [self._input_queue.popleft()]
        self._batch, self._num_free = None, None
        if self._suspects and not self._suspects[0]:
            self._suspects.popleft()
        if len(seated) == 1:
            for reply in self._responses[seated[0]]:
                reply.job.fail(error)
            self._drop(seated)
            return
        middle = len(seated) // 2
        self._suspects.extendleft((deque(seated[middle:]), deque(seated[:middle])))

    def _drop(self, requests: Sequence[DecodeRequest]) -> None:
        for request in requests:
            self._responses.pop(request, None)
            for queue in (self._waiting, *self._suspects):
                if request in queue:
                    queue.remove(request)
        # Seats know requests by their numbers, which two that differ only in their limits share.
        numbers = {each.request_id for each in requests} - {each.request_id for each in self._responses}
        if self._batch is not None and numbers:
            self._batch.cancel(numbers)
            self._num_free = self._batch.num_free


def _fail_on_error(response: PendingResponse, action: Callable[[], None]) -> None:
    """What goes wrong with one answer is told to whom it is for."""
    try:
        action()
    except Exception as error:
        response.job.fail(error)
