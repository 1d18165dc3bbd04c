"""Open-loop and closed-loop load: scheduled requests, client timeouts, outcomes."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from attendo.bench.load_test.apis import ApiAdapter, ParsedResponse
from attendo.bench.load_test.http_client import HttpClient, HttpClientError, ResponseListener
from attendo.errors import LocalizedText, UsageError

_MAX_REASON_BYTES = 300  # bytes of a rejection's body that are kept
RequestEnd = Literal["answered", "rejected", "late", "left", "failed"]


@dataclass(frozen=True)
class Load:
    """A load with `rate` requests per second at random times, or with `clients` that send after each response.

    A rate is an open loop: unlike waiting clients, it does not slow down with a slow server.
    """

    rate: float | None = None
    clients: int | None = None
    seconds: float = 10.0
    deadline: float = 10.0  # client timeout in seconds
    leaving: float = 0.0  # share of clients that disconnect earlier
    leave_within: float = 0.5  # seconds after the request within which those clients disconnect
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
        return LocalizedText("{count} client" if self.clients == 1 else "{count} clients", count=self.clients)

    def schedule_requests(self, texts: int) -> Iterator["PlannedRequest"]:
        """Yield requests: endlessly for clients, until `seconds` for a rate. The same in every call."""
        dice, at = Random(f"{self.seed} {self.name}"), 0.0
        while True:
            if self.rate is not None:
                at += dice.expovariate(self.rate)
                if at >= self.seconds:
                    return
            leaves = dice.random() < self.leaving
            leaves_after = dice.uniform(0, self.leave_within) if leaves else None
            yield PlannedRequest(at, dice.randrange(texts), leaves_after)


@dataclass(frozen=True)
class PlannedRequest:
    """One request: its time, its text, and the seconds until its client disconnects, if it does."""

    due: float
    text_index: int
    leaves_after: float | None = None


@dataclass(frozen=True)
class RequestOutcome:
    """Outcome of a request. Latency counts from the time it was due, even if it was sent later."""

    end: RequestEnd
    due: float  # seconds from the start of the load, like `ended_at`
    ended_at: float
    status: int | None = None  # HTTP status, if there was a response
    first_token_seconds: float | None = None  # seconds until the first part of the text
    response: ParsedResponse | None = None
    text_index: int = 0  # index of the requested text
    reason: str = ""  # of a failure or rejection

    @property
    def seconds(self) -> float:
        return self.ended_at - self.due


class LoadClient:
    """Sends requests to one server through one API. All times count from its creation."""

    def __init__(self, http_client: HttpClient, adapter: ApiAdapter) -> None:
        self._http_client, self._adapter = http_client, adapter
        self._begin = time.perf_counter()

    @property
    def now(self) -> float:
        return time.perf_counter() - self._begin

    async def send(
        self, text: str, due: float, deadline: float, number: int = 0, leaves_after: float | None = None
    ) -> RequestOutcome:
        """Send a request. The deadline counts from the due time, `leaves_after` from the end of sending, in seconds.

        A client disconnects only after its request was sent, so that client and server count the same requests.
        """
        first: list[float] = []
        received = bytearray()
        end: RequestEnd = "late"

        def on_data(part: bytes) -> None:
            if not first:
                received.extend(part)  # an event may be split over two parts
                if self._adapter.has_text(bytes(received)):
                    first.append(self.now - due)

        def on_sent() -> None:
            nonlocal end
            if leaves_after is not None and leaves_after < due + deadline - self.now:
                end = "left"
                limit.reschedule(asyncio.get_running_loop().time() + leaves_after)

        try:
            async with asyncio.timeout(due + deadline - self.now) as limit:
                request = self._adapter.build_request(text)
                http_response = await self._http_client.send(request, ResponseListener(on_sent, on_data))
        except TimeoutError:
            return RequestOutcome(end, due, self.now, text_index=number)
        except HttpClientError as error:
            return RequestOutcome("failed", due, self.now, text_index=number, reason=str(error))
        ended_at = self.now
        if http_response.status != 200:
            reason = " ".join(http_response.body[:_MAX_REASON_BYTES].decode("utf-8", "replace").split())
            return RequestOutcome("rejected", due, ended_at, http_response.status, text_index=number, reason=reason)
        try:
            response = self._adapter.parse_response(http_response.body)
        except ValueError as error:
            return RequestOutcome("failed", due, ended_at, http_response.status, text_index=number, reason=str(error))
        return RequestOutcome(
            "answered", due, ended_at, http_response.status, first[0] if first else None, response, number
        )


async def run_load(
    http_client: HttpClient, adapter: ApiAdapter, texts: Sequence[str], load: Load
) -> list[RequestOutcome]:
    """Run a load until every request has an outcome. Return the outcomes in order of their due times."""
    found: list[RequestOutcome] = []

    async def send_one(planned: PlannedRequest, due: float) -> None:
        number, text = planned.text_index, texts[planned.text_index]
        found.append(await client.send(text, due, load.deadline, number, planned.leaves_after))

    with _freeze_gc():
        client = LoadClient(http_client, adapter)
        await (_run_open_loop if load.rate is not None else _run_closed_loop)(client, load, len(texts), send_one)
    return sorted(found, key=lambda each: each.due)


async def request_all(
    http_client: HttpClient, adapter: ApiAdapter, texts: Sequence[str], clients: int, deadline: float
) -> list[RequestOutcome]:
    """Send every text once with `clients` concurrent clients, and return the outcomes in order of the texts."""
    load_client, found = LoadClient(http_client, adapter), dict[int, RequestOutcome]()
    waiting = list(enumerate(texts))[::-1]

    async def client() -> None:
        while waiting:
            number, text = waiting.pop()
            found[number] = await load_client.send(text, load_client.now, deadline, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[number] for number in range(len(texts))]


SendOne = Callable[[PlannedRequest, float], Any]


@contextmanager
def _freeze_gc() -> Iterator[None]:
    """Exclude existing objects from garbage collection during the load.

    With torch loaded, a full collection blocks the event loop for 0.1 s, which would count as server latency.
    """
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
