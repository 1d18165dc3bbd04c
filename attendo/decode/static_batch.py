"""Static-shape batch for CUDA graphs: slots, prefill, graph replay, asynchronous copies of results.

Sentences of different lengths do not wait for each other. On a GPU one captured step serves all of them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from types import FunctionType, MethodType
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.decode.frontier import Frontier, RowLimits, map_tensors, pack, unpack, zip_tensors
from attendo.decode.prefill import prefill_prefix
from attendo.decode.requests import DecodeRequest, FinishedBatch, RunningBatch, encode_and_start, limit_tensors
from attendo.decode.search import Rule, StaticNetwork, Strategy, decode_step
from attendo.nn.cuda_graph import capture_graph
from attendo.text import PAD
from attendo.text.tokenizer import end_source

_REFILL_DIVISOR = 4  # a quarter of the slots is refilled at once: encoding few sentences takes almost as long as many
_NUM_FIELDS = 5  # besides the source ids: their number, slot, max_length, min_length, request_id
_MAX_PENDING_COPIES = 3  # before another copy, the first must be complete
POLL_DELAY = 2  # steps that a GPU may run ahead of the host: enough to stay busy, few enough to waste little
_WARMUP_CALLS = 3  # calls before capture: libraries initialise in them, which cannot be captured


@dataclass(frozen=True)
class BatchShape:
    """The fixed sizes of a batch."""

    count: int  # sentences per batch
    source_width: int  # positions of a source, EOS included
    capacity: int  # positions of an answer, BOS and EOS included
    prefix_width: int = 0


def round_up(width: int, widths: Sequence[int]) -> int:
    """Round up to one of `widths`, or to a multiple of the last. Requests then share shapes and captured graphs."""
    return next((each for each in widths if each >= width), -(-width // widths[-1]) * widths[-1])


class StaticBatch(RunningBatch):
    """Decodes any number of requests that fit the shape."""

    _frontier: Frontier  # allocated once

    @torch.no_grad()
    def __init__(
        self,
        network: StaticNetwork,
        strategy: Strategy,
        rules: Sequence[Rule],
        shape: BatchShape,
        compiled: bool = False,
    ) -> None:
        self._network, self._strategy, self._rules = network, strategy, rules
        self._requests = [None] * shape.count
        self._started_at = [0] * shape.count  # step number at which each request was inserted
        self._frontier = self._empty_frontier(shape, network.device)
        self._state = network.allocate_state(shape.count, shape.source_width, strategy.width, shape.capacity)
        self._still_open = torch.zeros(shape.count, dtype=torch.bool, device=network.device)
        self._poller = FinishedPoller(network.device, shape.count)
        self._prefill = SlotPrefill(network, strategy, rules, self._state, self._frontier, shape.source_width, compiled)
        self._result_copy = AsyncResultCopy(self._frontier.hypotheses)
        step = compile_method(self._decode_step) if compiled else self._decode_step
        self._run_step: Callable[[], None] = CudaGraphRunner(step, network.device)

    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Insert waiting requests into free slots, decode one token per row, and yield finished requests."""
        self._insert(waiting)
        if any(self._requests):
            with torch.no_grad():
                self._run_step()
            self._poller.record(self._still_open)
            if (finished := self._find_finished()) and len(finished) >= self._min_refill(waiting):
                self._release(finished)
        yield from self._result_copy.pop_completed(wait_for_all=not any(self._requests))

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return any(self._requests) or self._result_copy.busy

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop these requests, or all requests if None, and free their slots."""
        super().cancel(request_ids)
        self._result_copy.cancel(request_ids)

    def _decode_step(self) -> None:
        state, frontier = decode_step(self._network, self._state, self._frontier, self._strategy, self._rules)
        zip_tensors(self._frontier, frontier, _copy_in_place)  # the next step reads these tensors
        self._state.write(state, frontier.open)
        self._still_open.copy_(frontier.open.view(-1, self._strategy.width).any(dim=1))

    def _insert(self, waiting: "deque[DecodeRequest]") -> None:
        free = [slot for slot, request in enumerate(self._requests) if request is None]
        if not waiting or len(free) < self._min_refill(waiting):
            return
        new = {slot: waiting.popleft() for slot in free[: len(waiting)]}
        self._prefill.insert([*new], [*new.values()])
        for slot, request in new.items():
            self._requests[slot], self._started_at[slot] = request, self._poller.step

    def _min_refill(self, waiting: "deque[DecodeRequest]") -> int:
        """Return the number of sentences to insert or release at once. If no request waits, it is 0."""
        return min(len(waiting), -(-len(self._requests) // _REFILL_DIVISOR))

    def _find_finished(self) -> dict[int, DecodeRequest]:
        """Return requests reported as finished, and those that must be: an answer has at most `max_length` tokens and
        EOS.
        """
        seen, step = self._poller.poll(), self._poller.step
        return {
            slot: request
            for slot, (request, since) in enumerate(zip(self._requests, self._started_at, strict=True))
            if request is not None
            and (
                step - since > request.max_length or (seen is not None and since < seen.step and not seen.is_open[slot])
            )
        }

    def _release(self, requests: dict[int, DecodeRequest]) -> None:
        """Start copying their results, and free their slots."""
        with torch.no_grad():
            self._result_copy.enqueue(requests)
        for slot in requests:
            self._requests[slot] = None

    def _empty_frontier(self, shape: BatchShape, device: torch.device) -> Frontier:
        """Return an empty frontier with every slot closed."""
        limits = limit_tensors([DecodeRequest(0, (), shape.capacity - 2)] * shape.count, device, shape.prefix_width)
        started = self._strategy.start(limits, shape.capacity)
        # Copies, because each tensor is written to and needs its own memory.
        return map_tensors(replace(started, open=torch.zeros_like(started.open)), torch.clone)


def _copy_in_place(here: Tensor, new: Tensor) -> Tensor:
    return here if here is new else here.copy_(new)


class SlotPrefill:
    """Encodes new requests and writes them into `state` and `frontier`, which the decoding steps read."""

    def __init__(
        self,
        network: StaticNetwork,
        strategy: Strategy,
        rules: Sequence[Rule],
        state: Any,
        frontier: Frontier,
        source_width: int,
        compiled: bool = False,
    ) -> None:
        self._network, self._strategy, self._rules = network, strategy, rules
        self._state, self._frontier = state, frontier
        self._source_width, self._prefix_width = source_width, frontier.limits.prefix.size(1)
        self._row_struct = Struct(f"{self._source_width + _NUM_FIELDS + self._prefix_width}q")
        self._device = frontier.ids.device
        # Compilation takes long, so it is used only for prefills of all slots.
        self._num_slots = frontier.open.size(0) // frontier.width
        self._prefill_all = compile_method(self._prefill) if compiled else self._prefill
        self._runners: dict[int, tuple[Tensor, Callable[[], None]]] = {}  # input buffer and work by number of sentences

    @torch.no_grad()
    def insert(self, slots: Sequence[int], requests: Sequence[DecodeRequest]) -> None:
        lines = bytearray().join(map(self._pack_request, slots, requests))
        sheet = torch.frombuffer(lines, dtype=torch.long).view(len(requests), -1)
        if self._device.type == "cpu":
            (self._prefill_all if len(requests) == self._num_slots else self._prefill)(sheet)
            return
        # Captured work has a fixed size. Unused rows repeat the last sentence.
        size = 1 << (len(requests) - 1).bit_length()
        if size not in self._runners:
            here = torch.empty(size, sheet.size(1), dtype=torch.long, device=self._device)
            read = self._prefill_all if size == self._num_slots else self._prefill
            self._runners[size] = here, CudaGraphRunner(partial(read, here), self._device)
        here, work = self._runners[size]
        here.copy_(torch.cat((sheet, sheet[-1:].expand(size - len(requests), -1))))
        work()

    def _pack_request(self, slot: int, request: DecodeRequest) -> bytes:
        """Pack all fields of a request, so that they need one copy to the device.

        Converting a list of numbers to a tensor takes seven times as long, and the device waits for it.
        """
        source, prefix = end_source(request.source), request.prefix
        length = len(source)
        return self._row_struct.pack(
            *source,
            *(PAD,) * (self._source_width - length),
            *(length, slot, request.max_length, request.min_length, request.request_id),
            *prefix,
            *(PAD,) * (self._prefix_width - len(prefix)),
        )

    def _prefill(self, packed: Int[Tensor, "N L"]) -> None:
        ids, numbers, prefix = packed.split((self._source_width, _NUM_FIELDS, self._prefix_width), dim=1)
        length, slots, limit, least, number = numbers.unbind(dim=1)
        mask = torch.arange(self._source_width, device=packed.device) < length[:, None]
        limits = RowLimits(max_length=limit, min_length=least, prefix=prefix, request_id=number)
        start = encode_and_start(self._network, ids, mask)
        new = self._strategy.start(limits, self._frontier.ids.size(1))
        start, new = prefill_prefix(self._network, start, new, self._strategy, self._rules)
        self._state.insert(slots, self._frontier.row_indices(slots), start)
        self._frontier.replace_sentences(slots, new.pad_to(new.ids.size(1), self._prefix_width), in_place=True)


@dataclass(frozen=True)
class PendingCopy:
    """A copy of the results of the sentences in some slots."""

    requests: Mapping[int, DecodeRequest]
    hypotheses: Frontier  # of all slots, at the start of the copy
    copied: "torch.cuda.Event | None" = None

    def exclude(self, request_ids: Collection[int] | None) -> "PendingCopy":
        """Return a copy without these requests, or without any request if None."""
        if request_ids is None:
            return replace(self, requests={})
        left = {slot: each for slot, each in self.requests.items() if each.request_id not in request_ids}
        return replace(self, requests=left)

    def get_results(self) -> FinishedBatch:
        """Wait for the copy and return the results. They are cloned, because the next copy reuses the buffer."""
        if self.copied is not None:
            self.copied.synchronize()
        return FinishedBatch(
            [*self.requests.values()], self.hypotheses.select_sentences(torch.tensor([*self.requests]))
        )


class AsyncResultCopy:
    """Copies `hypotheses`, whose tensors have fixed addresses, to the host. On a CPU this is optional (`buffered`)."""

    def __init__(self, hypotheses: Frontier, buffered: bool | None = None) -> None:
        self._hypotheses, self._device = hypotheses, hypotheses.ids.device
        self._pending: deque[PendingCopy] = deque()
        self._on_gpu = self._device.type == "cuda"
        self._buffers: deque[tuple[Tensor, Frontier]] = deque()
        if buffered or self._on_gpu:
            self._packed = pack(hypotheses)
            self._run_pack = CudaGraphRunner(self._pack_hypotheses, self._device)
            rooms = [
                torch.empty(self._packed.shape, dtype=torch.uint8, pin_memory=self._on_gpu)
                for _ in range(_MAX_PENDING_COPIES)
            ]
            self._buffers.extend((room, unpack(room, hypotheses)) for room in rooms)

    def enqueue(self, requests: Mapping[int, DecodeRequest]) -> None:
        """Start copying the results. Without buffers, read the results before the slots are reused."""
        if not self._buffers:
            self._pending.append(PendingCopy(requests, self._hypotheses))
            return
        self._run_pack()
        room, there = self._buffers[0]
        self._buffers.rotate(-1)
        room.copy_(self._packed, non_blocking=True)
        arrived = None
        if self._on_gpu:
            arrived = torch.cuda.Event()
            arrived.record()
        self._pending.append(PendingCopy(requests, there, arrived))

    def pop_completed(self, wait_for_all: bool = False) -> Iterator[FinishedBatch]:
        """Yield the completed results. If all buffers are in use, wait for the first."""
        while self._pending and (wait_for_all or self._is_copied(self._pending[0])):
            pending = self._pending.popleft()
            if pending.requests:
                yield pending.get_results()

    @property
    def busy(self) -> bool:
        return any(each.requests for each in self._pending)

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop the results of these requests, or all. Their copies still occupy buffers."""
        self._pending = deque(each.exclude(request_ids) for each in self._pending)

    def _pack_hypotheses(self) -> None:
        pack(self._hypotheses, self._packed)

    def _is_copied(self, pending: PendingCopy) -> bool:
        return len(self._pending) == _MAX_PENDING_COPIES or pending.copied is None or pending.copied.query()


@dataclass(frozen=True)
class FinishedFlags:
    """The open flags of all slots after a step."""

    step: int
    is_open: list[bool]


class FinishedPoller:
    """Copies the open flags after every step. On a GPU they are returned two steps later, when the copy is complete.

    Flags are copied on a side stream without blocking. A reading may be newer than its step number, never older.
    """

    def __init__(self, device: torch.device, count: int, delay: int | None = None) -> None:
        self._on_gpu = device.type == "cuda"
        self._delay = (POLL_DELAY if self._on_gpu else 0) if delay is None else delay
        self.step = 0  # number of the last recorded step
        self._pending: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()
        self._side_stream = torch.cuda.Stream(device) if self._on_gpu else None
        self._buffers = [torch.empty(count, dtype=torch.bool, pin_memory=self._on_gpu) for _ in range(self._delay + 1)]

    def record(self, is_open: Bool[Tensor, " B"]) -> None:
        self.step += 1
        here, arrived = self._buffers[self.step % len(self._buffers)], None
        if self._side_stream is not None:
            self._side_stream.wait_stream(torch.cuda.current_stream(self._side_stream.device))
            arrived = torch.cuda.Event()
        with torch.cuda.stream(self._side_stream):
            here.copy_(is_open, non_blocking=True)
            if arrived is not None:
                arrived.record()
        self._pending.append((self.step, here, arrived))

    def poll(self) -> FinishedFlags | None:
        """Return the oldest unread flags, or None if they are too recent to wait for."""
        if len(self._pending) <= self._delay:
            return None
        step, here, arrived = self._pending.popleft()
        if arrived is not None:
            arrived.synchronize()
        return FinishedFlags(step, here.tolist())


class CudaGraphRunner:
    """Runs `work`, as a CUDA graph on a GPU. `work` may read and write only tensors with fixed addresses."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device = work, device
        self._calls = 0
        self._replay: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._replay is None and self._calls >= _WARMUP_CALLS and self._device.type == "cuda":
            self._replay = self._capture()
        self._calls += 1
        (self._replay or self._work)()

    def _capture(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), capture_graph(graph):
            self._work()
        return graph.replay


def compile_method(method: Callable[..., None]) -> Callable[..., None]:
    """Compile a method. Results are the same up to rounding. The first call takes up to a minute.

    The compiler counts compilations per code object, over all instances, and stops after a few. So each compiled method
    gets its own code object.
    """
    assert isinstance(method, MethodType)
    function: Any = method.__func__
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    return torch.compile(MethodType(own, method.__self__), fullgraph=True, dynamic=False)
