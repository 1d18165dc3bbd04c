"""Static-shape batch for CUDA graphs: slots, prefill, graph replay, asynchronous copies of results.

Long and short sentences do not wait for each other, and on a GPU one recorded step serves all of them.
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

from attendo.decode.frontier import Asked, Frontier, as_bytes, changed, combined, from_bytes
from attendo.decode.prefill import read_ahead
from attendo.decode.requests import Answers, Request, asked_of, begun
from attendo.decode.search import Network, Rule, Strategy, turn
from attendo.decode.step_hook import between_steps
from attendo.nn.cuda_graph import recorded_into
from attendo.text import EOS, PAD

_SHARE = 4  # of the slots, one of so many changes at a time: reading few sentences takes almost as long as many
_NUMBERS = 5  # beside the ids of a source: how many they are, the slot, limit, least, number
_MOST = 3  # journeys at a time: before another, the first must arrive
BEHIND = 2  # steps that a GPU may be ahead of what the host has seen: enough to be busy, few enough to waste little
_AS_IT_COMES = 3  # calls before the recording: libraries set themselves up in them, which cannot be recorded


@dataclass(frozen=True)
class SlotSizes:
    """What never changes."""

    count: int  # sentences side by side
    source_width: int  # positions of a source, eos included
    capacity: int  # of an answer, bos and eos included
    prefix_width: int = 0


class Slots:
    """Serves any number of requests that fit into the sizes."""

    @torch.no_grad()
    def __init__(
        self,
        network: Network,
        strategy: Strategy,
        rules: Sequence[Rule],
        sizes: SlotSizes,
        compiled: bool = False,
    ) -> None:
        self._network, self._strategy, self._rules = network, strategy, rules
        self._serving: list[Request | None] = [None] * sizes.count
        self._since = [0] * sizes.count  # the step before the first of each
        self._frontier = self._closed(sizes, network.device)
        self._state = network.room(sizes.count, sizes.source_width, strategy.width, sizes.capacity)
        self._still_open = torch.zeros(sizes.count, dtype=torch.bool, device=network.device)
        self._looks = Looks(network.device, sizes.count)
        self._intake = Intake(network, strategy, rules, self._state, self._frontier, sizes.source_width, compiled)
        self._outlet = Outlet(self._frontier.hypotheses)
        step = compiled_alone(self._step) if compiled else self._step
        self._turn: Callable[[], None] = Recorded(step, network.device)

    def answers(self, requests: Sequence[Request]) -> Iterator[Answers]:
        """As soon as they are done. Those that were left from a call whose answers nobody took are forgotten."""
        self.forget()
        waiting = deque(requests)
        while waiting or self.busy:
            between_steps()
            yield from self.advance(waiting)

    def advance(self, waiting: "deque[Request]") -> Iterator[Answers]:
        """One more token for everybody, and what has been found. Who can be taken in leaves the queue first."""
        self._take_in(waiting)
        if any(self._serving):
            with torch.no_grad():
                self._turn()
            self._looks.note(self._still_open)
            if (done := self._done()) and len(done) >= self._worth_it(waiting):
                self._retire(done)
        yield from self._outlet.arrivals(all_of_them=not any(self._serving))

    @property
    def busy(self) -> bool:
        """Whether anybody's answer is still to come."""
        return any(self._serving) or self._outlet.busy

    def forget(self, numbers: Collection[int] | None = None) -> None:
        """Nobody waits for the answers to these requests any more, or to any; their slots are free."""
        self._serving = [
            None if request is None or numbers is None or request.number in numbers else request
            for request in self._serving
        ]
        self._outlet.forget(numbers)

    def _step(self) -> None:
        state, frontier = turn(self._network, self._state, self._frontier, self._strategy, self._rules)
        combined(self._frontier, frontier, _written)  # where the next step reads
        self._state.write(state, frontier.open)
        self._still_open.copy_(frontier.open.view(-1, self._strategy.width).any(dim=1))

    def _take_in(self, waiting: "deque[Request]") -> None:
        free = [slot for slot, request in enumerate(self._serving) if request is None]
        if not waiting or len(free) < self._worth_it(waiting):
            return
        new = {slot: waiting.popleft() for slot in free[: len(waiting)]}
        self._intake.take_in([*new], [*new.values()])
        for slot, request in new.items():
            self._serving[slot], self._since[slot] = request, self._looks.step

    def _worth_it(self, waiting: "deque[Request]") -> int:
        """So many sentences come in, and leave, at once. Where nobody waits for a slot, everybody leaves when done."""
        return min(len(waiting), -(-len(self._serving) // _SHARE))

    def _done(self) -> dict[int, Request]:
        """Those that were seen to be done, and those that must be: no answer is longer than its limit and eos."""
        seen, step = self._looks.oldest(), self._looks.step
        return {
            slot: request
            for slot, (request, since) in enumerate(zip(self._serving, self._since, strict=True))
            if request is not None
            and (step - since > request.limit or (seen is not None and since < seen.step and not seen.is_open[slot]))
        }

    def _retire(self, done: dict[int, Request]) -> None:
        """Their slots are free from now on."""
        with torch.no_grad():
            self._outlet.send(done)
        for slot in done:
            self._serving[slot] = None

    def _closed(self, sizes: SlotSizes, device: torch.device) -> Frontier:
        """Rows for nobody."""
        asked = asked_of([Request(0, (), sizes.capacity - 2)] * sizes.count, device, sizes.prefix_width)
        started = self._strategy.start(asked, sizes.capacity)
        # Copies, because each must have memory of its own to be written to.
        return changed(replace(started, open=torch.zeros_like(started.open)), torch.clone)


def _written(here: Tensor, new: Tensor) -> Tensor:
    return here if here is new else here.copy_(new)


class Intake:
    """Writes into `state` and `frontier`, which the steps of the slots read."""

    def __init__(
        self,
        network: Network,
        strategy: Strategy,
        rules: Sequence[Rule],
        state: Any,
        frontier: Frontier,
        source_width: int,
        compiled: bool = False,
    ) -> None:
        self._network, self._strategy, self._rules = network, strategy, rules
        self._state, self._frontier = state, frontier
        self._source_width, self._prefix_width = source_width, frontier.asked.prefix.size(1)
        self._numbers = Struct(f"{self._source_width + _NUMBERS + self._prefix_width}q")
        self._device = frontier.ids.device
        # Compiling takes long, so only what fills all slots is worth it.
        self._all = frontier.open.size(0) // frontier.width
        self._read_all = compiled_alone(self._read) if compiled else self._read
        self._sizes: dict[int, tuple[Tensor, Callable[[], None]]] = {}  # work by how many sentences it takes in

    @torch.no_grad()
    def take_in(self, slots: Sequence[int], requests: Sequence[Request]) -> None:
        lines = bytearray().join(map(self._line, slots, requests))
        sheet = torch.frombuffer(lines, dtype=torch.long).view(len(requests), -1)
        if self._device.type == "cpu":
            (self._read_all if len(requests) == self._all else self._read)(sheet)
            return
        # Recorded work has its size. What is too much for few sentences is done for the last one again.
        size = 1 << (len(requests) - 1).bit_length()
        if size not in self._sizes:
            here = torch.empty(size, sheet.size(1), dtype=torch.long, device=self._device)
            read = self._read_all if size == self._all else self._read
            self._sizes[size] = here, Recorded(partial(read, here), self._device)
        here, work = self._sizes[size]
        here.copy_(torch.cat((sheet, sheet[-1:].expand(size - len(requests), -1))))
        work()

    def _line(self, slot: int, request: Request) -> bytes:
        """All that is told of a sentence, so that it is one journey to the device.

        Packed, because while a list of numbers becomes a tensor, which takes seven times as long, the device waits.
        """
        source, prefix = request.source, request.prefix
        length = len(source) + 1
        return self._numbers.pack(
            *source,
            EOS,
            *(PAD,) * (self._source_width - length),
            *(length, slot, request.limit, request.least, request.number),
            *prefix,
            *(PAD,) * (self._prefix_width - len(prefix)),
        )

    def _read(self, sheet: Int[Tensor, "N L"]) -> None:
        ids, numbers, prefix = sheet.split((self._source_width, _NUMBERS, self._prefix_width), dim=1)
        length, slots, limit, least, number = numbers.unbind(dim=1)
        mask = torch.arange(self._source_width, device=sheet.device) < length[:, None]
        asked = Asked(limit=limit, least=least, prefix=prefix, number=number)
        start, new = begun(self._network, ids, mask), self._strategy.start(asked, self._frontier.ids.size(1))
        start, new = read_ahead(self._network, start, new, self._strategy, self._rules)
        self._state.take_in(slots, self._frontier.rows_of(slots), start)
        _put(self._frontier, slots, new.wide(new.ids.size(1), self._prefix_width))


def _put(here: Frontier, sentences: Int[Tensor, " N"], new: Frontier) -> None:
    """In place: the rows of these sentences are those of the new."""
    if here.finished is not None and new.finished is not None:
        _put(here.finished, sentences, new.finished)
    rows = here.rows_of(sentences)
    combined(
        replace(here, finished=None), replace(new, finished=None), lambda one, other: one.index_copy_(0, rows, other)
    )


@dataclass(frozen=True)
class Journey:
    """Of the sentences in these slots."""

    requests: Mapping[int, Request]
    hypotheses: Frontier  # of all slots, as they were at the departure
    arrived: "torch.cuda.Event | None" = None

    def without(self, numbers: Collection[int] | None) -> "Journey":
        """Of the others alone; None: of nobody."""
        left = {} if numbers is None else {n: each for n, each in self.requests.items() if each.number not in numbers}
        return replace(self, requests=left)

    def answers(self) -> Answers:
        """A copy: the next journey goes to the same place."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return Answers([*self.requests.values()], self.hypotheses.keep(torch.tensor([*self.requests])))


class Outlet:
    """`hypotheses` of the slots, whose tensors stay where they are. On a CPU they need not travel, but can."""

    def __init__(self, hypotheses: Frontier, travel: bool | None = None) -> None:
        self._hypotheses, self._device = hypotheses, hypotheses.ids.device
        self._under_way: deque[Journey] = deque()
        self._on_gpu = self._device.type == "cuda"
        self._rooms: deque[tuple[Tensor, Frontier]] = deque()
        if travel or self._on_gpu:
            self._bytes = as_bytes(hypotheses)
            self._gather = Recorded(self._gathered, self._device)
            rooms = [torch.empty(self._bytes.shape, dtype=torch.uint8, pin_memory=self._on_gpu) for _ in range(_MOST)]
            self._rooms.extend((room, from_bytes(room, hypotheses)) for room in rooms)

    def send(self, requests: Mapping[int, Request]) -> None:
        """To be taken before anything is written into their slots, unless they travel."""
        if not self._rooms:
            self._under_way.append(Journey(requests, self._hypotheses))
            return
        self._gather()
        room, there = self._rooms[0]
        self._rooms.rotate(-1)
        room.copy_(self._bytes, non_blocking=True)
        arrived = None
        if self._on_gpu:
            arrived = torch.cuda.Event()
            arrived.record()
        self._under_way.append(Journey(requests, there, arrived))

    def arrivals(self, all_of_them: bool = False) -> Iterator[Answers]:
        """Those that have come, and as many as must so that the next can depart."""
        while self._under_way and (all_of_them or self._is_here(self._under_way[0])):
            journey = self._under_way.popleft()
            if journey.requests:
                yield journey.answers()

    @property
    def busy(self) -> bool:
        return any(each.requests for each in self._under_way)

    def forget(self, numbers: Collection[int] | None = None) -> None:
        """What nobody waits for any more: the answers to these requests, or all. Their journeys still take room."""
        self._under_way = deque(each.without(numbers) for each in self._under_way)

    def _gathered(self) -> None:
        as_bytes(self._hypotheses, self._bytes)

    def _is_here(self, journey: Journey) -> bool:
        return len(self._under_way) == _MOST or journey.arrived is None or journey.arrived.query()


@dataclass(frozen=True)
class Look:
    """As things stood after a step."""

    step: int
    is_open: list[bool]


class Looks:
    """Noted after every step; on a GPU they are told two steps later, when they have arrived by themselves.

    They travel beside the steps, which do not wait for them. So a look may show a later step than the one it is named
    after, never an earlier one.
    """

    def __init__(self, device: torch.device, count: int, behind: int | None = None) -> None:
        self._on_gpu = device.type == "cuda"
        self._behind = (BEHIND if self._on_gpu else 0) if behind is None else behind
        self._step = 0
        self._noted: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()
        self._aside = torch.cuda.Stream(device) if self._on_gpu else None
        self._room = [torch.empty(count, dtype=torch.bool, pin_memory=self._on_gpu) for _ in range(self._behind + 1)]

    def note(self, is_open: Bool[Tensor, " B"]) -> None:
        self._step += 1
        here, arrived = self._room[self._step % len(self._room)], None
        if self._aside is not None:
            self._aside.wait_stream(torch.cuda.current_stream(self._aside.device))
            arrived = torch.cuda.Event()
        with torch.cuda.stream(self._aside):
            here.copy_(is_open, non_blocking=True)
            if arrived is not None:
                arrived.record()
        self._noted.append((self._step, here, arrived))

    @property
    def step(self) -> int:
        """The last one noted."""
        return self._step

    def oldest(self) -> Look | None:
        """What has not been told yet, as soon as it may be waited for."""
        if len(self._noted) <= self._behind:
            return None
        step, here, arrived = self._noted.popleft()
        if arrived is not None:
            arrived.synchronize()
        return Look(step, here.tolist())


class Recorded:
    """Does what `work` does, which must read and write nothing but tensors that stay where they are."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device = work, device
        self._calls = 0
        self._replay: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._replay is None and self._calls >= _AS_IT_COMES and self._device.type == "cuda":
            self._replay = self._recorded()
        self._calls += 1
        (self._replay or self._work)()

    def _recorded(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), recorded_into(graph):
            self._work()
        return graph.replay


def compiled_alone(method: Callable[..., None]) -> Callable[..., None]:
    """Does the same, but for rounding, after a first call that takes up to a minute.

    The compiler counts how often it has compiled a piece of code, for whichever object, and gives up after a few
    times. So here the method gets code of its own.
    """
    assert isinstance(method, MethodType)
    function: Any = method.__func__
    own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    return torch.compile(MethodType(own, method.__self__), fullgraph=True, dynamic=False)
