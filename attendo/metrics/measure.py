"""What a score is made of: some numbers of each line, and a formula for their sums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attendo.errors import UsageError

Statistics = Sequence[Sequence[float]]  # a row a line


@dataclass(frozen=True)
class Score:
    """A number and how it came about.

    Most are on the scale of 0 to 100; TER and the word error rate may be higher, and a perplexity is 1 or more.
    """

    name: str
    value: float
    signature: str
    higher_is_better: bool


@dataclass(frozen=True)
class Formula:
    """A score of any choice of lines, from the sums of their rows."""

    name: str
    signature: str
    higher_is_better: bool
    value: Callable[[Sequence[float]], float]  # of the sums


@dataclass(frozen=True)
class Measure(Formula):
    """A way to score outputs against the references it was made with.

    The texts are looked at once, however many choices of lines are scored.
    """

    statistics: Callable[[Sequence[str]], Statistics]  # of the outputs


@dataclass(frozen=True)
class Measured:
    """Lines that were looked at: their score all together, or that of some."""

    lines: int
    score_of: Callable[[Sequence[int]], Score]  # of the lines with these numbers

    @property
    def score(self) -> Score:
        return self.score_of(range(self.lines))

    def by(self, labels: Sequence[str]) -> dict[str, Score]:
        """Of the lines that have a label in common, labels in the order in which they first come."""
        if len(labels) != self.lines:
            raise UsageError("label_count_mismatch", lines=self.lines, labels=len(labels))
        groups: dict[str, list[int]] = {}
        for number, label in enumerate(labels):
            groups.setdefault(label, []).append(number)
        return {label: self.score_of(lines) for label, lines in groups.items()}


def measured(found: Formula, rows: Statistics) -> Measured:
    return Measured(len(rows), lambda lines: score_of(found, [rows[number] for number in lines]))


def score_of(found: Formula, rows: Statistics) -> Score:
    sums = [sum(column) for column in zip(*rows, strict=True)]
    return Score(found.name, found.value(sums), found.signature, found.higher_is_better)
