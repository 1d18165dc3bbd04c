"""What became of the requests of a load, in numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from attendo.recipes.bench_serving.asking import Outcome


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
