"""Runs load tests of one or several servers, and summarises latency and throughput."""

import asyncio
import math
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attendo.bench import Progress
from attendo.bench.load_test.apis import Api, ApiAdapter, make_adapter
from attendo.bench.load_test.http_client import Address, HttpClient, HttpClientError, HttpRequest
from attendo.bench.load_test.load import Load, RequestOutcome, request_all, run_load
from attendo.bench.load_test.server import ServerError
from attendo.errors import LocalizedText

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class LatencyStats:
    """Percentiles of the latency and its maximum, in seconds."""

    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def from_seconds(cls, seconds: Sequence[float]) -> "LatencyStats | None":
        if not seconds:
            return None
        found = sorted(seconds)
        return cls(*(found[math.ceil(share * len(found)) - 1] for share in (0.5, 0.9, 0.99, 1.0)))


@dataclass(frozen=True)
class LoadSummary:
    """Summary of one load. Throughput counts only responses that arrive during the load.

    Requests finished after it do not show how much load the server can sustain.
    """

    offered: int
    answered: int
    rejected: dict[int, int]  # by status
    late: int
    left: int
    failed: int
    requests_per_second: float
    tokens_per_second: float | None
    latency: LatencyStats | None  # of answered requests
    first_token: LatencyStats | None
    rejection: LatencyStats | None
    failures: tuple[str, ...] = ()  # distinct reasons
    rejection_bodies: dict[int, str] = field(default_factory=dict)  # body of the first rejection of each status

    @classmethod
    def from_outcomes(cls, outcomes: Sequence[RequestOutcome], seconds: float) -> "LoadSummary":
        ends = Counter(each.end for each in outcomes)
        answered = [each for each in outcomes if each.end == "answered"]
        rejected = [each for each in outcomes if each.end == "rejected"]
        timely = [each for each in answered if each.ended_at <= seconds]
        tokens = [
            each.response.tokens for each in timely if each.response is not None and each.response.tokens is not None
        ]
        return cls(
            len(outcomes),
            len(answered),
            dict(sorted(Counter(each.status or 0 for each in rejected).items())),
            ends["late"],
            ends["left"],
            ends["failed"],
            len(timely) / seconds,
            sum(tokens) / seconds if tokens else None,
            LatencyStats.from_seconds([each.seconds for each in answered]),
            LatencyStats.from_seconds(
                [each.first_token_seconds for each in answered if each.first_token_seconds is not None]
            ),
            LatencyStats.from_seconds([each.seconds for each in rejected]),
            tuple(dict.fromkeys(each.reason for each in outcomes if each.end == "failed")),
            {each.status or 0: each.reason for each in reversed(rejected)},
        )


@dataclass(frozen=True)
class LoadTestPlan:
    """Servers by name, loads and number of rounds of a load test."""

    servers: Mapping[str, str]  # name → URL
    loads: Sequence[Load]
    texts: Sequence[str]
    api: Api = "libretranslate"
    fields: Mapping[str, Any] = field(default_factory=dict)  # added to every request body
    headers: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 1
    warm_up: float = 1.0  # seconds under the first load before measuring


@dataclass(frozen=True)
class LoadMeasurement:
    """One server under one load, over all rounds."""

    server: str
    load: str
    summary: LoadSummary
    rounds: tuple[float, ...]  # answered requests per second, per round
    beside_first_load: float | None = None  # throughput divided by the same server's under the first load
    first_beside_it: float | None = None  # throughput of the first server divided by this server's


@dataclass(frozen=True)
class ConsistencyResult:
    """Comparison of outputs under load with outputs of one request at a time."""

    server: str
    texts: int
    clients: int
    unanswered: int
    different: tuple[tuple[str, str, str], ...]  # source, alone, under load

    @property
    def equal(self) -> bool:
        return not self.unanswered and not self.different


LoadReport = Progress | LoadMeasurement


async def run_load_test(plan: LoadTestPlan) -> AsyncIterator[LoadReport]:
    """Run every load on every server, and yield progress, then the measurements over all rounds."""
    clients = {name: HttpClient(Address.parse(url), plan.headers) for name, url in plan.servers.items()}
    try:
        adapters = {name: await make_adapter(plan.api, client, plan.fields) for name, client in clients.items()}
        found: dict[tuple[str, int], list[list[RequestOutcome]]] = {}
        for name, client in clients.items() if plan.warm_up else ():
            yield Progress(LocalizedText("{name}: warming up", name=name))
            load = replace(plan.loads[0], seconds=plan.warm_up, leaving=0.0)
            await run_load(client, adapters[name], plan.texts, load)
        for turn in range(plan.rounds):
            for number, load in enumerate(plan.loads):
                for name in _rotate(list(clients), turn):  # rotate the order in every round
                    yield Progress(
                        LocalizedText(
                            "round {turn} of {rounds}: {name}, {load}",
                            turn=turn + 1,
                            rounds=plan.rounds,
                            name=name,
                            load=load.name,
                        )
                    )
                    this_load = replace(load, seed=load.seed + turn)
                    outcomes = await run_load(clients[name], adapters[name], plan.texts, this_load)
                    found.setdefault((name, number), []).append(outcomes)
        for each in _combine_rounds(plan, found):
            yield each
    finally:
        for client in clients.values():
            await client.close()


async def check_consistency(plan: LoadTestPlan, clients: int) -> AsyncIterator[ConsistencyResult]:
    """S12: compare each server's outputs under load with its outputs for a single client."""
    for name, url in plan.servers.items():
        client = HttpClient(Address.parse(url), plan.headers)
        try:
            adapter = await make_adapter(plan.api, client, plan.fields)
            yield await _check_server(name, client, adapter, plan, clients)
        finally:
            await client.close()


async def wait_until_ready(url: str, seconds: float = 300.0) -> None:
    """Wait until a server is ready. Raise `ServerError` after `seconds`."""
    client, until, reason = HttpClient(Address.parse(url)), time.monotonic() + seconds, "it does not answer"
    while time.monotonic() < until:
        try:
            response = await client.send(HttpRequest("/readyz"))
        except HttpClientError as error:
            reason = str(error)
        else:
            await client.close()
            if response.status == 200:
                return
            reason = f"/readyz is answered with {response.status}"
        await asyncio.sleep(_POLL_SECONDS)
    raise ServerError("server_not_ready", url=url, reason=reason)


def _rotate(names: list[str], by: int) -> list[str]:
    return [names[(n + by) % len(names)] for n in range(len(names))]


def _combine_rounds(
    plan: LoadTestPlan, found: Mapping[tuple[str, int], list[list[RequestOutcome]]]
) -> list[LoadMeasurement]:
    speeds = {
        key: tuple(
            LoadSummary.from_outcomes(outcomes, plan.loads[key[1]].seconds).requests_per_second for outcomes in rounds
        )
        for key, rounds in found.items()
    }
    median = {key: statistics.median(each) for key, each in speeds.items()}
    first, results = next(iter(plan.servers)), []
    for number, load in enumerate(plan.loads):
        for name in plan.servers:
            key = (name, number)
            summary = LoadSummary.from_outcomes([each for outcomes in found[key] for each in outcomes], load.seconds)
            # `found` has the outcomes of all rounds, so tokens per second are divided by their number.
            tokens = summary.tokens_per_second
            summary = replace(
                summary,
                requests_per_second=median[key],
                tokens_per_second=None if tokens is None else tokens / plan.rounds,
            )
            beside = _ratio(median[key], median[name, 0]) if number else None
            ours = _ratio(median[first, number], median[key]) if name != first else None
            results.append(LoadMeasurement(name, load.name, summary, speeds[key], beside, ours))
    return results


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


async def _check_server(
    name: str, http_client: HttpClient, adapter: ApiAdapter, plan: LoadTestPlan, clients: int
) -> ConsistencyResult:
    deadline = plan.loads[0].deadline
    alone = await request_all(http_client, adapter, plan.texts, 1, deadline)
    loaded = await request_all(http_client, adapter, plan.texts, clients, deadline)
    pairs = list(zip(plan.texts, alone, loaded, strict=True))
    missing = sum(one.response is None or other.response is None for _, one, other in pairs)
    different = tuple(
        (text, one.response.text, other.response.text)
        for text, one, other in pairs
        if one.response is not None and other.response is not None and one.response.text != other.response.text
    )
    return ConsistencyResult(name, len(plan.texts), clients, missing, different)
