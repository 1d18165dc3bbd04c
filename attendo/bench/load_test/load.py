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

from attendo.bench.load_test.apis import ApiAdapter, ParsedResponse
from attendo.bench.load_test.http_client import HttpClient, HttpClientError, ResponseListener
from attendo.errors import UsageError

_MAX_REASON_BYTES = 300  # bytes of what a server says when it rejects a request
RequestEnd = Literal["answered", "rejected", "late", "left", "failed"]


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

    def schedule_requests(self, texts: int) -> Iterator["PlannedRequest"]:
        """Without end for clients; for a rate, until the seconds are over. The same in every call."""
        dice, at = Random(f"{self.seed} {self.name}"), 0.0
        for number in count():
            if self.rate is not None:
                at += dice.expovariate(self.rate)
                if at >= self.seconds:
                    return
            leaves = dice.random() < self.leaving
            patience = dice.uniform(0, self.leave_within) if leaves else None
            yield PlannedRequest(number, at, dice.randrange(texts), patience)


@dataclass(frozen=True)
class PlannedRequest:
    """One request: when it comes, with which text, and after how long its client leaves, should it do so."""

    number: int
    due: float
    text_index: int
    leaves_after: float | None = None


@dataclass(frozen=True)
class RequestOutcome:
    """What became of a request. Seconds count from when it was due, not from when there was time to send it."""

    end: RequestEnd
    due: float  # seconds from the beginning of the load, like `ended_at`
    ended_at: float
    status: int | None = None  # where there was a reply
    first_token_seconds: float | None = None  # seconds until the first part of its text
    response: ParsedResponse | None = None
    text_index: int = 0  # which text was asked for
    reason: str = ""  # it failed, or what was told with a rejection

    @property
    def seconds(self) -> float:
        return self.ended_at - self.due


@dataclass(frozen=True)
class Timeouts:
    """How long a client waits, in seconds: until the deadline from when it was due, or, once it has asked, until it
    means to leave. Whoever leaves has been heard, so that both sides can count it."""

    deadline: float
    leaves_after: float | None = None


class LoadClient:
    """Asks one server in one shape; `begin` is the moment that all times count from."""

    def __init__(self, http_client: HttpClient, adapter: ApiAdapter, begin: float | None = None) -> None:
        self._http_client, self._adapter = http_client, adapter
        self.begin = time.perf_counter() if begin is None else begin

    @property
    def now(self) -> float:
        return time.perf_counter() - self.begin

    async def send(self, text: str, due: float, timeouts: Timeouts, number: int = 0) -> RequestOutcome:
        first: list[float] = []
        end: RequestEnd = "late"

        def heard(part: bytes) -> None:
            if not first and self._adapter.has_text(part):
                first.append(self.now - due)

        def sent() -> None:
            nonlocal end
            after, left = timeouts.leaves_after, due + timeouts.deadline - self.now
            if after is not None and after < left:
                end = "left"
                limit.reschedule(asyncio.get_running_loop().time() + after)

        try:
            async with asyncio.timeout(due + timeouts.deadline - self.now) as limit:
                reply = await self._http_client.send(self._adapter.build_request(text), ResponseListener(sent, heard))
        except TimeoutError:
            return RequestOutcome(end, due, self.now, text_index=number)
        except HttpClientError as error:
            return RequestOutcome("failed", due, self.now, text_index=number, reason=str(error))
        over = self.now
        if reply.status != 200:
            told = reply.body[:_MAX_REASON_BYTES].decode("utf-8", "replace")
            return RequestOutcome("rejected", due, over, reply.status, text_index=number, reason=" ".join(told.split()))
        try:
            said = self._adapter.parse_response(reply.body)
        except ValueError as error:
            return RequestOutcome("failed", due, over, reply.status, text_index=number, reason=str(error))
        return RequestOutcome("answered", due, over, reply.status, first[0] if first else None, said, number)


async def run_load(
    http_client: HttpClient, adapter: ApiAdapter, texts: Sequence[str], load: Load
) -> list[RequestOutcome]:
    """In the order in which they were due. Ends when the last has its answer, or has given up."""
    found: list[RequestOutcome] = []

    async def one(planned: PlannedRequest, due: float) -> None:
        patience = Timeouts(load.deadline, planned.leaves_after)
        found.append(await asker.send(texts[planned.text_index], due, patience, planned.text_index))

    with _freeze_gc():
        asker = LoadClient(http_client, adapter)
        await (_run_open_loop if load.rate is not None else _run_closed_loop)(asker, load, len(texts), one)
    return sorted(found, key=lambda each: each.due)


async def request_all(
    http_client: HttpClient, adapter: ApiAdapter, texts: Sequence[str], clients: int, deadline: float
) -> list[RequestOutcome]:
    """Every text once, in order, by so many clients at the same time."""
    asker, found, waiting = LoadClient(http_client, adapter), dict[int, RequestOutcome](), list(enumerate(texts))[::-1]

    async def client() -> None:
        while waiting:
            number, text = waiting.pop()
            found[number] = await asker.send(text, asker.now, Timeouts(deadline), number)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[number] for number in range(len(texts))]


SendOne = Callable[[PlannedRequest, float], Any]


@contextmanager
def _freeze_gc() -> Iterator[None]:
    """Python looks through all that there is now and then, which takes it 0.1 s where torch is loaded: time in which
    answers lie unread and requests unsent, and which would count as the server's. What nobody needs any more waits."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _run_open_loop(load_client: LoadClient, load: Load, texts: int, send_one: SendOne) -> None:
    async with asyncio.TaskGroup() as group:
        for planned in load.schedule_requests(texts):
            if (wait := planned.due - load_client.now) > 0:
                await asyncio.sleep(wait)
            group.create_task(send_one(planned, planned.due))


async def _run_closed_loop(load_client: LoadClient, load: Load, texts: int, send_one: SendOne) -> None:
    plans = load.schedule_requests(texts)

    async def client() -> None:
        while (now := load_client.now) < load.seconds:
            await send_one(next(plans), now)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.clients or 1):
            group.create_task(client())
