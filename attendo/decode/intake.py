"""How sentences come into slots: their sources are read, and what a step must know of them is written in its place."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from attendo.decode.compiling import compiled_alone
from attendo.decode.frontier import Asked, Frontier, combined
from attendo.decode.reading_ahead import read_ahead
from attendo.decode.recorded import Recorded
from attendo.decode.requests import Request, begun
from attendo.decode.search import Network, Rule, Strategy
from attendo.text import EOS, PAD

_NUMBERS = 5  # beside the ids of a source: how many they are, the slot, limit, least, number


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
