"""Load tests of one or several servers, and their latency and throughput summaries."""

import asyncio
import math
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attendo.bench.load_test.apis import Api, Shape, shape_for
from attendo.bench.load_test.http_client import Address, Question, Wire, WireError
from attendo.bench.load_test.load import Load, Outcome, answers, loaded
from attendo.bench.load_test.server import ServerError

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Spread:
    """Seconds: half, nine tenths, ninety-nine hundredths of all took no longer, and the slowest."""

    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread | None":
        if not seconds:
            return None
        found = sorted(seconds)
        return cls(*(found[math.ceil(share * len(found)) - 1] for share in (0.5, 0.9, 0.99, 1.0)))


@dataclass(frozen=True)
class Summary:
    """Of one load. Only answers that came while the load lasted count for its throughput: what is worked off when
    nothing new comes tells nothing about how much the server can take."""

    offered: int
    answered: int
    rejected: dict[int, int]  # by status
    late: int
    left: int
    failed: int
    requests_per_second: float
    tokens_per_second: float | None
    latency: Spread | None  # of what was answered
    first_token: Spread | None
    rejection: Spread | None
    failures: tuple[str, ...] = ()  # different reasons
    told: dict[int, str] = field(default_factory=dict)  # with the first rejection of each status

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], seconds: float) -> "Summary":
        ends = Counter(each.end for each in outcomes)
        answered = [each for each in outcomes if each.end == "answered"]
        rejected = [each for each in outcomes if each.end == "rejected"]
        timely = [each for each in answered if each.over <= seconds]
        tokens = [each.said.tokens for each in timely if each.said is not None and each.said.tokens is not None]
        return cls(
            len(outcomes),
            len(answered),
            dict(sorted(Counter(each.status or 0 for each in rejected).items())),
            ends["late"],
            ends["left"],
            ends["failed"],
            len(timely) / seconds,
            sum(tokens) / seconds if tokens else None,
            Spread.of([each.seconds for each in answered]),
            Spread.of([each.first for each in answered if each.first is not None]),
            Spread.of([each.seconds for each in rejected]),
            tuple(dict.fromkeys(each.why for each in outcomes if each.end == "failed")),
            {each.status or 0: each.why for each in reversed(rejected)},
        )


@dataclass(frozen=True)
class LoadTestPlan:
    """Which servers, by name, under which loads, how often."""

    servers: Mapping[str, str]  # name and address
    loads: Sequence[Load]
    texts: Sequence[str]
    api: Api = "libretranslate"
    fields: Mapping[str, Any] = field(default_factory=dict)  # of every body
    headers: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 1
    warm_up: float = 1.0  # seconds under the first load before anything counts


@dataclass(frozen=True)
class Doing:
    """What comes next, for whoever waits."""

    text: str


@dataclass(frozen=True)
class LoadMeasurement:
    """One server under one load, all rounds together."""

    server: str
    load: str
    summary: Summary
    rounds: tuple[float, ...]  # requests answered in a second
    beside_first_load: float | None = None  # throughput in relation to the same server under the first load
    first_beside_it: float | None = None  # how many times as much the first server answers under this load


@dataclass(frozen=True)
class ConsistencyResult:
    """Texts under load beside those of one request at a time."""

    server: str
    texts: int
    clients: int
    unanswered: int
    different: tuple[tuple[str, str, str], ...]  # source, alone, under load

    @property
    def equal(self) -> bool:
        return not self.unanswered and not self.different


Report = Doing | LoadMeasurement


async def measured(plan: LoadTestPlan) -> AsyncIterator[Report]:
    """Every server under every load; what all rounds of one had together comes at the end."""
    wires = {name: Wire(Address.of(url), plan.headers) for name, url in plan.servers.items()}
    try:
        shapes = {name: await shape_for(plan.api, wire, plan.fields) for name, wire in wires.items()}
        found: dict[tuple[str, int], list[list[Outcome]]] = {}
        for name, wire in wires.items() if plan.warm_up else ():
            yield Doing(f"{name}: warming up")
            await loaded(wire, shapes[name], plan.texts, replace(plan.loads[0], seconds=plan.warm_up, leaving=0.0))
        for turn in range(plan.rounds):
            for number, load in enumerate(plan.loads):
                for name in _rotated(list(wires), turn):  # nobody always comes after the same one
                    yield Doing(f"round {turn + 1} of {plan.rounds}: {name}, {load.name}")
                    told = await loaded(wires[name], shapes[name], plan.texts, replace(load, seed=load.seed + turn))
                    found.setdefault((name, number), []).append(told)
        for each in _results(plan, found):
            yield each
    finally:
        for wire in wires.values():
            await wire.close()


async def compared(plan: LoadTestPlan, clients: int) -> AsyncIterator[ConsistencyResult]:
    """S12: whether each server says under load what it says to a single client."""
    for name, url in plan.servers.items():
        wire = Wire(Address.of(url), plan.headers)
        try:
            shape = await shape_for(plan.api, wire, plan.fields)
            yield await _compared(name, wire, shape, plan, clients)
        finally:
            await wire.close()


async def ready(url: str, headers: Mapping[str, str] | None = None, seconds: float = 300.0) -> None:
    """Waits until a server says that it can answer."""
    wire, until, told = Wire(Address.of(url), headers), time.monotonic() + seconds, "it does not answer"
    while time.monotonic() < until:
        try:
            reply = await wire.ask(Question("/readyz"))
        except WireError as error:
            told = str(error)
        else:
            await wire.close()
            if reply.status == 200:
                return
            told = f"/readyz is answered with {reply.status}"
        await asyncio.sleep(_LOOK_SECONDS)
    raise ServerError("server_not_ready", url=url, reason=told)


def _rotated(names: list[str], by: int) -> list[str]:
    return [names[(n + by) % len(names)] for n in range(len(names))]


def _results(plan: LoadTestPlan, found: Mapping[tuple[str, int], list[list[Outcome]]]) -> list[LoadMeasurement]:
    speeds = {
        key: tuple(Summary.of(told, plan.loads[key[1]].seconds).requests_per_second for told in rounds)
        for key, rounds in found.items()
    }
    median = {key: statistics.median(each) for key, each in speeds.items()}
    first, results = next(iter(plan.servers)), []
    for number, load in enumerate(plan.loads):
        for name in plan.servers:
            key = (name, number)
            whole = Summary.of([each for told in found[key] for each in told], load.seconds)
            # Outcomes of several rounds lie over one another in time, so their sums are divided.
            tokens = whole.tokens_per_second
            whole = replace(
                whole,
                requests_per_second=median[key],
                tokens_per_second=None if tokens is None else tokens / plan.rounds,
            )
            beside = _ratio(median[key], median[name, 0]) if number else None
            ours = _ratio(median[first, number], median[key]) if name != first else None
            results.append(LoadMeasurement(name, load.name, whole, speeds[key], beside, ours))
    return results


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


async def _compared(name: str, wire: Wire, shape: Shape, plan: LoadTestPlan, clients: int) -> ConsistencyResult:
    deadline = plan.loads[0].deadline
    alone = await answers(wire, shape, plan.texts, 1, deadline)
    crowded = await answers(wire, shape, plan.texts, clients, deadline)
    pairs = list(zip(plan.texts, alone, crowded, strict=True))
    missing = sum(one.said is None or other.said is None for _, one, other in pairs)
    different = tuple(
        (text, one.said.text, other.said.text)
        for text, one, other in pairs
        if one.said is not None and other.said is not None and one.said.text != other.said.text
    )
    return ConsistencyResult(name, len(plan.texts), clients, missing, different)
