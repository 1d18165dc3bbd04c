"""What one path answers beside another, hypothesis by hypothesis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Told(Protocol):
    """A hypothesis."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def log_probability(self) -> float: ...

    @property
    def score(self) -> float: ...


@dataclass(frozen=True)
class Compared:
    """What one path gives beside another."""

    path: str
    what: str  # is compared: "greedy", "beam 4" ...
    count: int  # of answers or numbers; 0: there was nothing to compare
    different: int = 0  # with another token in one of their hypotheses
    ties: int = 0  # of these, where each hypothesis was as good as the other in its place: rounding decided
    largest: float = 0.0  # difference of log-probabilities of equal hypotheses, or of values; infinite where no number
    allowed: float = 0.0
    example: str = ""  # of a difference

    @property
    def equal(self) -> bool:
        return self.different == self.ties and self.largest <= self.allowed


def compared(
    path: str,
    what: str,
    pairs: Sequence[tuple[Sequence[Told], Sequence[Told]]],
    allowed: float,
    text: Callable[[Sequence[int]], str],
) -> Compared:
    """Of each answer what was found and what is expected, best first."""
    different, ties, largest, example = 0, 0, 0.0, ""
    for found, expected in pairs:
        both = [(one, other) for one, other in zip(found, expected, strict=False) if one.ids == other.ids]
        largest = max(largest, *(apart(one.log_probability, other.log_probability) for one, other in both), 0.0)
        if len(both) == len(found) == len(expected):
            continue
        different += 1
        ties += len(found) == len(expected) and all(
            apart(one.score, other.score) <= allowed for one, other in zip(found, expected, strict=True)
        )
        example = example or _example(found, expected, text)
    return Compared(path, what, len(pairs), different, ties, largest, allowed, example)


def apart(one: float, other: float) -> float:
    """-∞ and -∞ are the same; what is no number is as far from everything as can be."""
    if one == other:
        return 0.0
    distance = abs(one - other)
    return math.inf if math.isnan(distance) else distance


def _example(found: Sequence[Told], expected: Sequence[Told], text: Callable[[Sequence[int]], str]) -> str:
    for one, other in zip(found, expected, strict=False):
        if one.ids != other.ids:
            return f"{text(one.ids)!r} and {text(other.ids)!r}"
    return f"{len(found)} hypotheses and {len(expected)}"
