"""An engine that makes do with the memory there is: where that runs out, fewer sentences stand side by side."""

import warnings
from collections.abc import Callable, Iterator, Sequence

from attendo.decode.engines import Engine
from attendo.decode.requests import Answers, Request
from attendo.decode.search import Rule, Strategy
from attendo.nn.out_of_memory import let_go, ran_out


class LessAtOnceWarning(UserWarning):
    """Answers take longer than they might, for want of memory."""


class MakingDo:
    """`made` makes an engine for so many positions side by side: `positions` of them, or half as many, and so on.

    What has been answered stays answered. What an engine keeps for later calls is given up before its size is.
    """

    def __init__(self, made: Callable[[int], Engine], positions: int) -> None:
        self._made, self._positions = made, positions
        self._engine = made(positions)

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        waiting = {request.number: request for request in requests}
        wanted, keeps_nothing = self._positions, False
        while waiting:
            try:
                for answers in self._engine.answers([*waiting.values()], strategy, rules):
                    wanted = self._told(wanted)
                    for request in answers.requests:
                        del waiting[request.number]
                    yield answers
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                if keeps_nothing and self._positions == 1:
                    error.add_note("one sentence at a time is too much: take a smaller beam, or the device cpu")
                    raise
            # The error is gone here, and with it all that its traceback held.
            if waiting:
                self._begin_again(self._positions // 2 if keeps_nothing else self._positions)
                keeps_nothing = True

    def _begin_again(self, positions: int) -> None:
        self._positions, self._engine = positions, self._made(positions)
        let_go()

    def _told(self, wanted: int) -> int:
        """Once it is known how many do fit."""
        if self._positions < wanted:
            warnings.warn(
                f"memory does not suffice for {wanted:,} source positions side by side: going on with "
                f"{self._positions:,} (batch_tokens)",
                LessAtOnceWarning,
                stacklevel=2,
            )
        return self._positions
