"""Every system answers the same sources; in every round all of them take turns."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from attendo.errors import ModelError
from attendo.model.transformer import Transformer
from attendo.recipes.bench.ours import Ours
from attendo.recipes.bench.rivals import load_rival
from attendo.recipes.bench.scoring import Scoring
from attendo.recipes.bench.work import Precision, System, Work

Ids = list[list[int]]
_WARM_UP = 4  # more calls of each system on a GPU before the clock runs: memory, plans and recordings are made in them


@dataclass(frozen=True)
class Rival:
    """Another system, and what it computes in."""

    name: str
    precision: Precision


@dataclass(frozen=True)
class Plan:
    """What is compared with what, on which work, how often."""

    network: Transformer
    precision: Precision
    rivals: Sequence[Rival]
    works: Sequence[Work]
    rounds: int
    device: torch.device
    scoring: Scoring | None = None


@dataclass(frozen=True)
class Doing:
    """What comes next, for whoever waits."""

    text: str


@dataclass(frozen=True)
class LeftOut:
    """A rival that takes no part."""

    name: str
    reason: str


@dataclass(frozen=True)
class Measured:
    """What a system took for a piece of work."""

    system: str
    beam: int
    batch: int
    tokens: int  # in all answers; eos counted where it was said
    seconds: tuple[float, ...]  # of each round
    ratio: float | None = None  # how many times as fast attendo is, from the medians; None for attendo itself
    same: float | None = None  # share of tokens that attendo says too
    bleu: float | None = None  # of the answers, where there are references

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.median


Report = Doing | LeftOut | Measured


def compare(plan: Plan, clock: Callable[[], float] = time.perf_counter) -> Iterator[Report]:
    """Load each system once, then for each piece of work: let all answer, look whether they agree, time them."""
    systems: list[System] = [Ours(plan.network, plan.precision, plan.device)]
    longest = max(work.longest for work in plan.works)
    with TemporaryDirectory(prefix="attendo-bench-") as folder:
        for n, rival in enumerate(plan.rivals):
            yield Doing(f"loading {rival.name} {rival.precision}")
            place = Path(folder, str(n))
            try:
                systems.append(load_rival(rival.name, rival.precision, plan.network, plan.device, longest, place))
            except ModelError as error:
                yield LeftOut(f"{rival.name} {rival.precision}", str(error))
        for work in plan.works:
            yield from _measure(systems, work, plan, clock)


def share_alike(one: Ids, other: Ids) -> float:
    """Of all places that either has a token at, the share at which both have the same."""
    places = sum(max(len(a), len(b)) for a, b in zip(one, other, strict=True))
    alike = sum(x == y for a, b in zip(one, other, strict=True) for x, y in zip(a, b, strict=False))
    return alike / places if places else 1.0


def _measure(systems: Sequence[System], work: Work, plan: Plan, clock: Callable[[], float]) -> Iterator[Report]:
    calls = [system.prepare(work) for system in systems]
    said: list[Ids] = []
    for system, call in zip(systems, calls, strict=True):
        yield Doing(f"beam {work.beam}, batch {work.batch}: {system.name} answers")
        said.append(system.ids(call()))
        for _ in range(_WARM_UP if plan.device.type == "cuda" else 0):
            call()
    times: list[list[float]] = [[] for _ in systems]
    for turn in range(plan.rounds):
        yield Doing(f"beam {work.beam}, batch {work.batch}: round {turn + 1} of {plan.rounds}")
        for n in range(len(systems)):
            which = (n + turn) % len(systems)  # nobody always comes after the same one
            times[which].append(_timed(calls[which], clock))
    ours = statistics.median(times[0])
    for n, system in enumerate(systems):
        rival = {"ratio": statistics.median(times[n]) / ours, "same": share_alike(said[0], said[n])} if n else {}
        tokens = sum(len(answer) + (len(answer) < work.most) for answer in said[n])
        bleu = plan.scoring.bleu(said[n]) if plan.scoring is not None else None
        yield Measured(system.name, work.beam, work.batch, tokens, tuple(times[n]), **rival, bleu=bleu)


def _timed(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    call()
    return clock() - begin
