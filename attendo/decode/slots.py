"""A batch whose shapes never change: sentences take a slot, and leave it to the next when they are done.

Long and short sentences do not wait for each other, and on a GPU one recorded step serves all of them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attendo.decode.frontier import Frontier, changed, combined
from attendo.decode.looks import Looks
from attendo.decode.recorded import recorded
from attendo.decode.requests import Request, asked_of, sources_of
from attendo.decode.search import Rule, Strategy, turn
from attendo.model.state import DecoderState, FixedState
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues


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
        network: Transformer,
        strategy: Strategy,
        rules: Sequence[Rule],
        sizes: SlotSizes,
        compiled: bool = False,
    ) -> None:
        self._network, self._strategy, self._rules = network, strategy, rules
        self._sizes = sizes
        self._device = network.target.tokens.weight.device
        self._serving: list[Request | None] = [None] * sizes.count
        self._since = [0] * sizes.count  # the step before the first of each
        self._looks = Looks(self._device, sizes.count)
        self._frontier = self._closed()
        self._state = self._empty()
        self._turn: Callable[[], None] = self._turn_as_it_comes
        if compiled:
            self._turn = torch.compile(self._turn, fullgraph=True, dynamic=False)
        if self._device.type == "cuda":
            self._turn = recorded(self._turn, self._device)

    def answers(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Frontier]]:
        """Each with its hypotheses, on the CPU, as soon as it is done."""
        waiting = deque(requests)
        while waiting or any(self._serving):
            self._take_in(waiting)
            self._turn()
            yield from self._retired()

    @torch.no_grad()
    def _turn_as_it_comes(self) -> None:
        state, frontier = turn(self._network, self._state, self._frontier, self._strategy, self._rules)
        self._note(state, frontier)

    def _note(self, state: FixedState, frontier: Frontier) -> None:
        """What a step came to is written where the next one reads."""
        combined(self._frontier, frontier, _written)
        self._state.length.copy_(torch.where(frontier.open, state.length, self._state.length))
        if self._state.order is not None and state.order is not None:
            self._state.order.copy_(state.order)

    @torch.no_grad()
    def _take_in(self, waiting: "deque[Request]") -> None:
        free = [slot for slot, request in enumerate(self._serving) if request is None][: len(waiting)]
        if not free:
            return
        requests = [waiting.popleft() for _ in free]
        slots = torch.tensor(free, device=self._device)
        ids, mask = sources_of(requests, self._device, self._sizes.source_width)
        start = self._network.start(self._network.encode(ids, mask))
        for here, new in zip(self._state.memory, start.memory, strict=True):
            here.keys.index_copy_(0, slots, new.keys)
            here.values.index_copy_(0, slots, new.values)
        assert self._state.memory_mask is not None
        self._state.memory_mask.index_copy_(0, slots, mask)
        rows = self._frontier.rows_of(slots)
        self._state.length.index_fill_(0, rows, 0)
        if self._state.order is not None:
            self._state.order.index_copy_(0, rows, rows[:, None].expand(-1, self._state.order.size(1)))
        asked = asked_of(requests, self._device, self._sizes.prefix_width)
        begun = self._frontier.put(slots, self._strategy.start(asked, self._frontier.ids.size(1)))
        combined(self._frontier, begun, _written)
        for slot, request in zip(free, requests, strict=True):
            self._serving[slot], self._since[slot] = request, self._looks.step

    @torch.no_grad()
    def _retired(self) -> list[tuple[Request, Frontier]]:
        """Those that are known to be done, whose slots are free from now on."""
        self._looks.note(self._frontier.open.view(-1, self._strategy.width).any(dim=1))
        seen = self._looks.oldest()
        if seen is None:
            return []
        done = [
            (slot, request)
            for slot, request in enumerate(self._serving)
            if request is not None and self._since[slot] < seen.step and not seen.is_open[slot]
        ]
        if not done:
            return []
        slots = torch.tensor([slot for slot, _ in done], device=self._device)
        hypotheses = self._frontier.hypotheses.keep(slots).cpu()
        for slot, _ in done:
            self._serving[slot] = None
        return [(request, hypotheses.keep(torch.tensor([n]))) for n, (_, request) in enumerate(done)]

    def _closed(self) -> Frontier:
        """Rows for nobody."""
        asked = asked_of(
            [Request(0, (), self._sizes.capacity - 2)] * self._sizes.count, self._device, self._sizes.prefix_width
        )
        started = self._strategy.start(asked, self._sizes.capacity)
        # Copies, because each must have memory of its own to be written to.
        return changed(replace(started, open=torch.zeros_like(started.open)), torch.clone)

    def _empty(self) -> FixedState:
        rows = self._sizes.count * self._strategy.width
        memory = tuple(self._room(self._sizes.count, self._sizes.source_width) for _ in self._network.decoder)
        is_token = torch.ones(self._sizes.count, self._sizes.source_width, dtype=torch.bool, device=self._device)
        storage = [self._room(rows, self._sizes.capacity) for _ in self._network.decoder]
        return FixedState.empty(DecoderState(memory, is_token), storage, follows=self._strategy.width > 1)

    def _room(self, rows: int, positions: int) -> KeysValues:
        config, like = self._network.config, self._network.target.tokens.weight
        width = config.d_model // config.num_heads
        keys, values = (
            torch.zeros(rows, config.num_heads, positions, each or width, dtype=like.dtype, device=like.device)
            for each in (config.d_key, config.d_value)
        )
        return KeysValues(keys, values)


def _written(here: Tensor, new: Tensor) -> Tensor:
    return here if here is new else here.copy_(new)
