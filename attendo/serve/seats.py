"""Where sentences of the same kind are answered together: a crowd on a CPU, slots of fixed size on a GPU."""

import logging
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from attendo.decode.config import GenerationConfig
from attendo.decode.crowd import Crowd
from attendo.decode.frontier import Frontier
from attendo.decode.layout import Layout
from attendo.decode.requests import Answers, Request
from attendo.decode.search import Network, Rule, Strategy
from attendo.decode.slots import Slots, SlotSizes
from attendo.model.transformer import Transformer
from attendo.nn.out_of_memory import let_go, ran_out
from attendo.text_model import TextModel
from attendo.text_model.calls import Call
from attendo.text_model.choices import covering

_log = logging.getLogger("attendo.serve")
_WIDTHS = (32, 128, 512, 2048)  # of sources that are answered together; then by the 2048
_PREFIXES = (0, 8, 64, 512)
_FEW_ROWS = 8  # of a sentence, that a crowd is faster with
_ON_CPU, _ON_GPU = 32, 128  # sentences side by side
_STEPS_BETWEEN_LOOKS = 4  # on a GPU, where a look waits for all that was asked of it before


class Seats(Protocol):
    """What answers sentences step by step."""

    @property
    def busy(self) -> bool: ...

    @property
    def free(self) -> int: ...

    def advance(self, waiting: "deque[Request]") -> Iterator[Answers]: ...

    def forget(self, numbers: Collection[int] | None = None) -> None: ...

    def look(self, numbers: Collection[int]) -> Iterator[tuple[Request, Frontier]]: ...


@dataclass(frozen=True)
class Kind:
    """Requests of the same kind can be answered side by side."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    network: tuple[str, bool, bool]  # precision, whether attention is kept count of, whether it is compiled
    positions: int  # of sources side by side, once for each row
    width: int  # that sources are rounded up to; answers have twice as many tokens at most
    prefix: int


class SeatMaker:
    """Knows the model."""

    def __init__(self, model: TextModel, most: int | None = None, fixed: bool | None = None) -> None:
        """`most` sentences side by side. `fixed`: slots also on a CPU."""
        self._model, self._on_gpu = model, model.device.type == "cuda"
        self.most = most or (_ON_GPU if self._on_gpu else _ON_CPU)
        self._fixed = self._on_gpu if fixed is None else fixed
        self._networks: dict[tuple[str, bool, bool], Network] = {}
        self._layouts: dict[tuple[str, bool, bool], Layout] = {}

    @property
    def steps_between_looks(self) -> int:
        return _STEPS_BETWEEN_LOOKS if self._on_gpu else 1

    @property
    def any(self) -> bool:
        """Exported models have none: they answer call after call."""
        return self._model.runtime.name == "torch"

    def can_answer(self, call: Call) -> bool:
        return self.any and call.one_search

    def kinds(self, call: Call) -> Iterator[tuple[Kind, Request]]:
        """Of every line; a line that is there twice is told once."""
        requests, strategy, rules = call.search()
        config = call.config
        network = (config.precision, config.coverage_penalty > 0, config.compile)
        self._prepare(config, network)
        for request in dict.fromkeys(requests):
            width = _rounded(max(len(request.source) + 1, request.limit // 2), _WIDTHS)
            prefix = _rounded(len(request.prefix), _PREFIXES)
            yield Kind(strategy, tuple(rules), network, config.positions(self._on_gpu), width, prefix), request

    def make(self, kind: Kind) -> Seats:
        """As many as there is memory for."""
        width = kind.strategy.width
        most = max(1, min(self.most, kind.positions // (kind.width * width)))
        while True:
            try:
                return self._made(kind, most)
            except (RuntimeError, MemoryError) as error:
                if most == 1 or not ran_out(error):
                    raise
            _log.warning("memory does not suffice for %d sentences side by side: making do with %d", most, most // 2)
            most //= 2
            let_go()

    def _made(self, kind: Kind, most: int) -> Seats:
        network, width = self._networks[kind.network], kind.strategy.width
        if not self._fixed and isinstance(network, Transformer) and width <= _FEW_ROWS:
            layout = self._layouts.setdefault(kind.network, Layout(network))
            return Crowd(layout, kind.strategy, kind.rules, most)
        sizes = SlotSizes(most, kind.width, 2 * kind.width + 4, kind.prefix)
        return WatchedSlots(network, kind.strategy, kind.rules, sizes, compiled=kind.network[2])

    def _prepare(self, config: GenerationConfig, key: tuple[str, bool, bool]) -> None:
        if key not in self._networks:
            reader = self._model.runtime.reader(config)
            assert reader is not None  # torch tells the logits
            self._networks[key] = covering(config, reader)


class WatchedSlots(Slots):
    """Slots that can be looked into while they work."""

    @property
    def free(self) -> int:
        """Sentences that may come in."""
        return sum(each is None for each in self._serving)

    def look(self, numbers: Collection[int]) -> Iterator[tuple[Request, Frontier]]:
        """How far these requests have come. A GPU is waited for."""
        for slot, request in enumerate(self._serving):
            if request is not None and request.number in numbers:
                place = torch.tensor([slot], device=self._frontier.ids.device)
                yield request, self._frontier.keep(place).cpu()


def _rounded(width: int, widths: tuple[int, ...]) -> int:
    return next((each for each in widths if each >= width), -(-width // widths[-1]) * widths[-1])
