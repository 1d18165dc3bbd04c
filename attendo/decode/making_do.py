"""An engine that makes do with the memory there is: where that runs out, fewer sentences stand side by side."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

from attendo.decode.engines import Engine
from attendo.decode.requests import Answers, Request
from attendo.decode.search import Rule, Strategy
from attendo.nn.out_of_memory import let_go, ran_out


class LessAtOnceWarning(UserWarning):
    """Answers take longer than they might, for want of memory."""


class MakingDo:
    """`made` makes an engine for so many positions side by side: `positions` of them, or half as many, and so on.

    What has been answered stays answered. What engines keep for later calls is given up before any size is, and a size
    that answers is kept; one that does not proves nothing for other requests.
    """

    def __init__(self, made: Callable[[int], Engine], positions: int) -> None:
        self._made, self._positions = made, positions
        self._engine: Engine | None = made(positions)
        _ALL.add(self)

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        waiting = {request.number: request for request in requests}
        engine, positions, keeps_nothing = self._ready(), self._positions, False
        while waiting:
            try:
                for answers in engine.answers([*waiting.values()], strategy, rules):
                    self._keep(engine, positions)
                    for request in answers.requests:
                        del waiting[request.number]
                    yield answers
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                if keeps_nothing and positions <= 1:
                    error.add_note("one sentence at a time is too much: take a smaller beam, or the device cpu")
                    raise
            # The error is gone here, and with it all that its traceback held.
            if waiting:
                positions = max(1, positions // 2) if keeps_nothing else positions
                engine, keeps_nothing = self._made(positions), True
                _give_up_what_is_kept()

    def _ready(self) -> Engine:
        engine = self._engine or self._made(self._positions)
        self._engine = engine
        return engine

    def _keep(self, engine: Engine, positions: int) -> None:
        """Now that it is known to fit."""
        wanted, self._positions, self._engine = self._positions, positions, engine
        if positions < wanted:
            warnings.warn(
                f"memory does not suffice for {wanted:,} source positions side by side: going on with {positions:,} "
                "(batch_tokens)",
                LessAtOnceWarning,
                stacklevel=2,
            )


_ALL: WeakSet[MakingDo] = WeakSet()


def _give_up_what_is_kept() -> None:
    """Batches that wait for more of their kind, of all models. Whoever is at work holds its own engine."""
    for each in list(_ALL):
        each._engine = None
    let_go()
