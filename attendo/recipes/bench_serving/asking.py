"""One request from its due moment to its end, and every way that it can end."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from attendo.recipes.bench_serving.shapes import Said, Shape
from attendo.recipes.bench_serving.wire import Ear, Wire, WireError

_TOLD = 300  # bytes of what a server says when it rejects a request
End = Literal["answered", "rejected", "late", "left", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of a request. Seconds count from when it was due, not from when there was time to send it."""

    end: End
    due: float  # seconds from the beginning of the load, like `over`
    over: float
    status: int | None = None  # where there was a reply
    first: float | None = None  # seconds until the first part of its text
    said: Said | None = None
    text: int = 0  # which text was asked for
    why: str = ""  # it failed, or what was told with a rejection

    @property
    def seconds(self) -> float:
        return self.over - self.due


@dataclass(frozen=True)
class Patience:
    """How long a client waits, in seconds: until the deadline from when it was due, or, once it has asked, until it
    means to leave. Whoever leaves has been heard, so that both sides can count it."""

    deadline: float
    leaves_after: float | None = None


class Asker:
    """Asks one server in one shape; `begin` is the moment that all times count from."""

    def __init__(self, wire: Wire, shape: Shape, begin: float | None = None) -> None:
        self._wire, self._shape = wire, shape
        self.begin = time.perf_counter() if begin is None else begin

    @property
    def now(self) -> float:
        return time.perf_counter() - self.begin

    async def ask(self, text: str, due: float, patience: Patience, number: int = 0) -> Outcome:
        first: list[float] = []
        end: End = "late"

        def heard(part: bytes) -> None:
            if not first and self._shape.speaks(part):
                first.append(self.now - due)

        def sent() -> None:
            nonlocal end
            after, left = patience.leaves_after, due + patience.deadline - self.now
            if after is not None and after < left:
                end = "left"
                limit.reschedule(asyncio.get_running_loop().time() + after)

        try:
            async with asyncio.timeout(due + patience.deadline - self.now) as limit:
                reply = await self._wire.ask(self._shape.question(text), Ear(sent, heard))
        except TimeoutError:
            return Outcome(end, due, self.now, text=number)
        except WireError as error:
            return Outcome("failed", due, self.now, text=number, why=str(error))
        over = self.now
        if reply.status != 200:
            told = reply.body[:_TOLD].decode("utf-8", "replace")
            return Outcome("rejected", due, over, reply.status, text=number, why=" ".join(told.split()))
        try:
            said = self._shape.said(reply.body)
        except ValueError as error:
            return Outcome("failed", due, over, reply.status, text=number, why=str(error))
        return Outcome("answered", due, over, reply.status, first[0] if first else None, said, number)
