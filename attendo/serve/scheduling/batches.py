"""Batch groups: requests with the same batch key that are decoded in one running batch."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from attendo.decode.config import GenerationConfig
from attendo.decode.continuous_batch import ColumnMajorWeights, ContinuousBatch
from attendo.decode.engines import Engine
from attendo.decode.frontier import Frontier
from attendo.decode.parallel import ParallelBatch, decodes_by_token
from attendo.decode.requests import DecodeRequest, RunningBatch
from attendo.decode.search import Rule, Seq2SeqNetwork, StaticNetwork, Strategy
from attendo.decode.static_batch import BatchShape, StaticBatch, round_up
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.nn.devices import halve_on_out_of_memory
from attendo.serve.scheduling.jobs import ScheduledJob
from attendo.text_model import Result, TextModel
from attendo.text_model.backends import with_coverage
from attendo.text_model.generation import PreparedCall

_log = logging.getLogger("attendo.serve")
_SOURCE_WIDTHS = (32, 128, 512, 2048)  # source widths are rounded up to these, longer ones to multiples of 2048
_PREFIX_WIDTHS = (0, 8, 64, 512)
_MAX_CONTINUOUS_ROWS = 8  # rows per sentence up to which a ContinuousBatch is faster than a StaticBatch
_CPU_BATCH_SIZE, _GPU_BATCH_SIZE = 32, 128  # sentences
_MAX_ENGINES = 4  # of answers that are predicted at once
_GPU_PEEK_INTERVAL = 4  # steps; on a GPU a peek waits for all queued kernels


class NetworkKey(NamedTuple):
    """Settings that select the network of a batch."""

    precision: str
    covers: bool  # whether there is a coverage penalty
    compiled: bool
    at_once: GenerationConfig | None = None  # the settings of answers that are predicted at once


@dataclass(frozen=True)
class BatchKey:
    """Requests with the same key can share a running batch."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    network_key: NetworkKey
    max_positions: int  # source positions of a batch, counted once per row
    source_width: int  # positions of a padded source; answers have at most twice as many tokens
    prefix_width: int


class BatchFactory:
    """Makes the running batches of one model."""

    def __init__(self, model: TextModel, max_batch_size: int | None = None, static_shapes: bool | None = None) -> None:
        """`max_batch_size` is in sentences. `static_shapes` selects `StaticBatch` on a CPU too."""
        self._model, self._on_gpu = model, model.device.type == "cuda"
        self.max_batch_size = max_batch_size or (_GPU_BATCH_SIZE if self._on_gpu else _CPU_BATCH_SIZE)
        self._is_parallel = self.supports_batching and model.network.config.kind != "autoregressive"
        network = model.network if self._is_parallel else None
        self._positions_per_token = network.upsample or 1 if isinstance(network, ParallelTransformer) else 1
        self._static_shapes = self._on_gpu if static_shapes is None else static_shapes
        self._engines: dict[GenerationConfig, Engine] = {}
        self._networks: dict[NetworkKey, Seq2SeqNetwork] = {}
        self._cpu_weights: dict[NetworkKey, ColumnMajorWeights] = {}

    @property
    def peek_interval(self) -> int:
        return _GPU_PEEK_INTERVAL if self._on_gpu else 1

    @property
    def supports_batching(self) -> bool:
        """False for exported models, which run one call after another."""
        return self._model.backend.name == "torch"

    def can_batch(self, call: PreparedCall) -> bool:
        return self.supports_batching and call.is_single_search

    def split_by_key(self, call: PreparedCall) -> Iterator[tuple[BatchKey, DecodeRequest]]:
        """Yield the batch key and the request of every line. Duplicate lines are yielded once."""
        requests, strategy, rules = call.prepare_search()
        config = call.config
        by_step = NetworkKey(config.precision, config.coverage_penalty > 0, config.compile)
        for request in dict.fromkeys(requests):
            at_once = self._is_parallel and not decodes_by_token(request, config, strategy, rules)
            network = by_step._replace(at_once=config) if at_once else by_step
            if not at_once:
                self._prepare_network(config, network)
            width = round_up(max(request.source_length, request.max_length // 2), _SOURCE_WIDTHS)
            prefix = round_up(len(request.prefix), _PREFIX_WIDTHS)
            yield (
                BatchKey(strategy, tuple(rules), network, config.resolve_batch_tokens(self._on_gpu), width, prefix),
                request,
            )

    def make(self, key: BatchKey) -> RunningBatch:
        """Return a batch of the largest size that fits into memory."""
        width = key.strategy.width * self._positions_per_token
        most = max(1, min(self.max_batch_size, key.max_positions // (key.source_width * width)))
        return halve_on_out_of_memory(most, partial(self._build, key), _warn_out_of_memory)

    def _build(self, key: BatchKey, batch_size: int) -> RunningBatch:
        if (config := key.network_key.at_once) is not None:
            return ParallelBatch(self._find_engine(config), key.strategy, key.rules, batch_size)
        network, width = self._networks[key.network_key], key.strategy.width
        if not isinstance(network, StaticNetwork):  # a graph
            return ContinuousBatch(network, key.strategy, key.rules, batch_size)
        if not self._static_shapes and isinstance(network, Transformer) and width <= _MAX_CONTINUOUS_ROWS:
            layout = self._cpu_weights.setdefault(key.network_key, ColumnMajorWeights(network))
            return ContinuousBatch(layout, key.strategy, key.rules, batch_size)
        sizes = BatchShape(batch_size, key.source_width, 2 * key.source_width + 4, key.prefix_width)
        return StaticBatch(network, key.strategy, key.rules, sizes, compiled=key.network_key.compiled)

    def _find_engine(self, config: GenerationConfig) -> Engine:
        """Return the engine of these settings. The last few are kept: on a GPU they hold CUDA graphs."""
        engine = self._engines.pop(config, None) or self._model.backend.engine(config, constrained=False)
        self._engines[config] = engine
        if len(self._engines) > _MAX_ENGINES:
            del self._engines[next(iter(self._engines))]
        return engine

    def _prepare_network(self, config: GenerationConfig, key: NetworkKey) -> None:
        if key not in self._networks:
            reader = self._model.backend.network(config)
            assert reader is not None  # only networks without next tokens have none
            self._networks[key] = with_coverage(config, reader)


def _warn_out_of_memory(size: int) -> None:
    _log.warning("not enough memory for a batch of %d sentences: the batch is reduced to %d", size, size // 2)


class PendingResponse:
    """Response of one job: all results together after the last one, or one text streamed in chunks."""

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
    """Requests with one batch key, and their running batch.

    The batch is made at the first step. Equal requests of several jobs are decoded once.
    """

    def __init__(self, make_batch: Callable[[], RunningBatch], peek_interval: int = 1) -> None:
        self._make_batch, self._peek_interval = make_batch, peek_interval
        self._batch: RunningBatch | None = None
        self._waiting: deque[DecodeRequest] = deque()
        self._suspects: deque[deque[DecodeRequest]] = deque()  # decoded apart after a failed step
        self._responses: dict[DecodeRequest, list[PendingResponse]] = {}
        self._steps = 0
        self._batch_size = 0
        self._num_free: int | None = None
        self.closing = False  # accepts no requests until it is empty

    @property
    def busy(self) -> bool:
        """True if a step has work to do."""
        return self._is_running or bool(self._suspects) or (bool(self._waiting) and not self.closing)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def num_running(self) -> int:
        """Number of running sentences; thread-safe."""
        return max(0, len(self._responses) - len(self._waiting))

    @property
    def num_free(self) -> int | None:
        """Number of free slots, or None before the batch is made; thread-safe."""
        return 0 if self.closing else self._num_free

    @property
    def num_used(self) -> int:
        """Number of used slots; thread-safe."""
        free = self._num_free  # read once: the worker thread may change it
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
        """Drop the requests that only this response waits for."""
        for request in response.pending & self._responses.keys():
            others = [each for each in self._responses[request] if each is not response]
            if others:
                self._responses[request] = others
            else:
                self._drop([request])

    def step(self) -> None:
        """Decode one token for every running sentence."""
        feed = self._input_queue
        before = [*feed]
        try:
            if self._batch is None:
                self._batch = self._make_batch()
                self._batch_size = self._batch.num_free
            answers = [*self._batch.step(feed)]
        except Exception as error:  # of any kind: the other requests must be finished
            self._bisect_failure(error)
            return
        for request in before[: len(before) - len(feed)]:
            for response in self._responses[request]:
                response.job.start()
        # Update after the jobs have started: until then their slots count as free. Update before results are
        # delivered: a client that sends its next request at once must find the slot free.
        self._num_free = self._batch.num_free
        for each in answers:
            for request, hypotheses in each.split():
                self._deliver(request, hypotheses)
        if self._suspects and not self._suspects[0] and not self._is_running:
            self._suspects.popleft()
        self._peek()

    @property
    def _input_queue(self) -> "deque[DecodeRequest]":
        """Requests that the batch may accept at this step."""
        if self._suspects:
            return self._suspects[0]
        return deque() if self.closing else self._waiting

    def _deliver(self, request: DecodeRequest, hypotheses: Frontier) -> None:
        for response in self._responses.pop(request, ()):
            _fail_on_error(response, partial(response.add_result, request, hypotheses))

    def _peek(self) -> None:
        """Send the new text of streamed responses."""
        self._steps += 1
        if self._batch is None or self._steps % self._peek_interval:
            return
        numbers = {
            request.request_id
            for request, each in self._responses.items()
            if any(response.streamed for response in each)
        }
        if not numbers:
            return
        for request, frontier in self._batch.peek(numbers):
            for response in self._responses.get(request, ()):
                _fail_on_error(response, partial(response.send_new_text, frontier))

    def _bisect_failure(self, error: Exception) -> None:
        """Find the faulty request by bisection and fail it. The others are decoded again from the start."""
        queued = {*self._waiting, *chain(*self._suspects)}
        running = [request for request in self._responses if request not in queued] or [self._input_queue.popleft()]
        self._batch, self._num_free = None, None
        if self._suspects and not self._suspects[0]:
            self._suspects.popleft()
        if len(running) == 1:
            for response in self._responses[running[0]]:
                response.job.fail(error)
            self._drop(running)
            return
        middle = len(running) // 2
        self._suspects.extendleft((deque(running[middle:]), deque(running[:middle])))

    def _drop(self, requests: Sequence[DecodeRequest]) -> None:
        for request in requests:
            self._responses.pop(request, None)
            for queue in (self._waiting, *self._suspects):
                if request in queue:
                    queue.remove(request)
        # Batches cancel by request id, which requests that differ only in their limits share.
        numbers = {each.request_id for each in requests} - {each.request_id for each in self._responses}
        if self._batch is not None and numbers:
            self._batch.cancel(numbers)
            self._num_free = self._batch.num_free


def _fail_on_error(response: PendingResponse, action: Callable[[], None]) -> None:
    """Run the action. An error fails only the job of this response."""
    try:
        action()
    except Exception as error:
        response.job.fail(error)
