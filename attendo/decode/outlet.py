"""How answers leave slots: on a GPU all of them travel beside the work that goes on, and nobody waits for them."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attendo.decode.frontier import Frontier, as_bytes, from_bytes
from attendo.decode.recorded import Recorded
from attendo.decode.requests import Answers, Request

_MOST = 3  # journeys at a time: before another, the first must arrive


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
