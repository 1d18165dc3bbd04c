"""Open-loop and closed-loop load: scheduled requests, client timeouts, outcomes."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Literal

from attendo.bench.load_test.apis import Said, Shape
from attendo.bench.load_test.http_client import Ear, Wire, WireError
from attendo.errors import UsageError

_TOLD = 300  # bytes of what a server says when it rejects a request
End = Literal["answered", "rejected", "late", "left", "failed"]


@dataclass(frozen=True)
class Load:
    """By `rate`, so many requests a second at random moments, or by `clients`, each of which asks once it is answered.

    A rate is an open loop: a slow server is not spared, as it would be by clients that wait for it.
    """

    rate: float | None = None
    clients: int | None = None
    seconds: float = 10.0
    deadline: float = 10.0  # seconds until a client gives up
    leaving: float = 0.0  # share of clients that leave before
    leave_within: float = 0.5  # seconds in which those leave, once they have asked
    seed: int = 1

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.clients is None):
            raise UsageError("rate_clients_conflict")
        for name in ("rate", "clients", "seconds", "deadline", "leave_within"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e6:
                raise UsageError("load_setting_out_of_range", name=name, value=value)
        if not 0 <= self.leaving <= 1:
            raise UsageError("leave_share_out_of_range", share=self.leaving)

    @property
    def name(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g}/s"
        return "1 client" if self.clients == 1 else f"{self.clients} clients"

    def plans(self, texts: int) -> Iterator["Planned"]:
        """Without end for clients; for a rate, until the seconds are over. The same in every call."""
        dice, at = Random(f"{self.seed} {self.name}"), 0.0
        for number in count():
            if self.rate is not None:
                at += dice.expovariate(self.rate)
                if at >= self.seconds:
                    return
            leaves = dice.random() < self.leaving
            patience = dice.uniform(0, self.leave_within) if leaves else None
            yield Planned(number, at, dice.randrange(texts), patience)


@dataclass(frozen=True)
class Planned:
    """One request: when it comes, with which text, and after how long its client leaves, should it do so."""

    number: int
    at: float
    text: int
    leaves_after: float | None = None


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


async def loaded(wire: Wire, shape: Shape, texts: Sequence[str], load: Load) -> list[Outcome]:
    """In the order in which they were due. Ends when the last has its answer, or has given up."""
    found: list[Outcome] = []

    async def one(planned: Planned, due: float) -> None:
        patience = Patience(load.deadline, planned.leaves_after)
        found.append(await asker.ask(texts[planned.text], due, patience, planned.text))

    with _undisturbed():
        asker = Asker(wire, shape)
        await (_open_loop if load.rate is not None else _closed_loop)(asker, load, len(texts), one)
    return sorted(found, key=lambda each: each.due)


async def answers(wire: Wire, shape: Shape, texts: Sequence[str], clients: int, deadline: float) -> list[Outcome]:
    """Every text once, in order, by so many clients at the same time."""
    asker, found, waiting = Asker(wire, shape), dict[int, Outcome](), list(enumerate(texts))[::-1]

    async def client() -> None:
        while waiting:
            number, text = waiting.pop()
            found[number] = await asker.ask(text, asker.now, Patience(deadline), number)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[number] for number in range(len(texts))]


One = Callable[[Planned, float], Any]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Python looks through all that there is now and then, which takes it 0.1 s where torch is loaded: time in which
    answers lie unread and requests unsent, and which would count as the server's. What nobody needs any more waits."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _open_loop(asker: Asker, load: Load, texts: int, one: One) -> None:
    async with asyncio.TaskGroup() as group:
        for planned in load.plans(texts):
            if (wait := planned.at - asker.now) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(planned, planned.at))


async def _closed_loop(asker: Asker, load: Load, texts: int, one: One) -> None:
    plans = load.plans(texts)

    async def client() -> None:
        while (now := asker.now) < load.seconds:
            await one(next(plans), now)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.clients or 1):
            group.create_task(client())
