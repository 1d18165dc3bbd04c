"""A batch whose shapes never change: sentences take a slot, and leave it to the next when they are done.

Long and short sentences do not wait for each other, and on a GPU one recorded step serves all of them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attendo.decode.compiling import compiled_alone
from attendo.decode.frontier import Frontier, changed, combined
from attendo.decode.intake import Intake
from attendo.decode.looks import Looks
from attendo.decode.outlet import Outlet
from attendo.decode.recorded import Recorded
from attendo.decode.requests import Answers, Request, asked_of
from attendo.decode.search import Network, Rule, Strategy, turn
from attendo.decode.watching import between_steps

_SHARE = 4  # of the slots, one of so many changes at a time: reading few sentences takes almost as long as many


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
