"""Metric as line statistics and a formula over their sums; reference sets and signatures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from typing import Any

from attendo.errors import UsageError

Statistics = Sequence[Sequence[float]]  # a row a line
References = Sequence[str] | Sequence[Sequence[str]]
ReferenceSets = Sequence[tuple[str, ...]]  # of each line, all that are right
# A plain import of the package would tie this layer to all that the package has on show.
VERSION_SIGNATURE = f"attendo:{import_module('attendo').__version__}"


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
class MetricFormula:
    """A score of any choice of lines, from the sums of their rows."""

    name: str
    signature: str
    higher_is_better: bool
    value: Callable[[Sequence[float]], float]  # of the sums


@dataclass(frozen=True)
class Metric(MetricFormula):
    """A way to score outputs against the references it was made with.

    The texts are looked at once, however many choices of lines are scored.
    """

    statistics: Callable[[Sequence[str]], Statistics]  # of the outputs


@dataclass(frozen=True)
class MetricValues:
    """Lines that were looked at: their score all together, or that of some."""

    num_lines: int
    score_lines: Callable[[Sequence[int]], Score]  # of the lines with these numbers

    @property
    def score(self) -> Score:
        return self.score_lines(range(self.num_lines))

    def score_by_label(self, labels: Sequence[str]) -> dict[str, Score]:
        """Of the lines that have a label in common, labels in the order in which they first come."""
        if len(labels) != self.num_lines:
            raise UsageError("label_count_mismatch", lines=self.num_lines, labels=len(labels))
        groups: dict[str, list[int]] = {}
        for number, label in enumerate(labels):
            groups.setdefault(label, []).append(number)
        return {label: self.score_lines(lines) for label, lines in groups.items()}


def make_metric_values(formula: MetricFormula, rows: Statistics) -> MetricValues:
    return MetricValues(len(rows), lambda lines: compute_score(formula, [rows[number] for number in lines]))


def compute_score(formula: MetricFormula, rows: Statistics) -> Score:
    sums = [sum(column) for column in zip(*rows, strict=True)]
    return Score(formula.name, formula.value(sums), formula.signature, formula.higher_is_better)


def normalise_references(references: References) -> list[tuple[str, ...]]:
    if isinstance(references, str):
        raise UsageError("metric_texts_not_list")
    found = [(each,) if isinstance(each, str) else tuple(each) for each in references]
    if not all(found):
        raise UsageError("line_without_reference", line=found.index(()) + 1)
    return found


def flatten_references(references: ReferenceSets) -> list[str]:
    return [text for line in references for text in line]


def to_sacrebleu_streams(references: ReferenceSets) -> list[list[Any]]:
    """As sacrebleu takes them: all first references, all second ones and so on; None where a line has fewer."""
    return [list(stream) for stream in zip_longest(*references)]


def reference_count_signature(references: ReferenceSets) -> str:
    """For a signature, as sacrebleu writes it; nothing where each line has one."""
    numbers = {len(line) for line in references}
    if numbers == {1}:
        return ""
    return f"nrefs:{numbers.pop()}|" if len(numbers) == 1 else "nrefs:var|"
