"""Metrics as per-line statistics and a formula over their sums, reference sets and signatures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import zip_longest
from typing import Any

from attendo.errors import UsageError

Statistics = Sequence[Sequence[float]]  # one row per line
References = Sequence[str] | Sequence[Sequence[str]]
ReferenceSets = Sequence[tuple[str, ...]]  # all references of each line
# import_module avoids a static import, which would make this layer depend on the whole public API.
VERSION_SIGNATURE = f"attendo:{import_module('attendo').__version__}"


@dataclass(frozen=True)
class Score:
    """Value of a metric and its signature.

    Most metrics range from 0 to 100. TER and word error rate may exceed 100. Perplexity is at least 1.
    """

    name: str
    value: float
    signature: str
    higher_is_better: bool


@dataclass(frozen=True)
class MetricFormula:
    """Formula that computes a score from the summed statistics of any subset of lines."""

    name: str
    signature: str
    higher_is_better: bool
    value: Callable[[Sequence[float]], float]  # maps the sums to the score


@dataclass(frozen=True)
class Metric(MetricFormula):
    """Metric for outputs against fixed references.

    Statistics are computed once per text and reused for every subset of lines.
    """

    statistics: Callable[[Sequence[str]], Statistics]  # statistics of the outputs


@dataclass(frozen=True)
class MetricValues:
    """Scores of all lines or of any subset."""

    num_lines: int
    score_lines: Callable[[Sequence[int]], Score]  # takes line indices

    @property
    def score(self) -> Score:
        return self.score_lines(range(self.num_lines))

    def score_by_label(self, labels: Sequence[str]) -> dict[str, Score]:
        """Return the score of the lines of each label, in order of first occurrence."""
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
    """Transpose to sacrebleu's streams: all first references, all second ones and so on. None fills missing ones."""
    return [list(stream) for stream in zip_longest(*references)]


def reference_count_signature(references: ReferenceSets) -> str:
    """Return the number of references for a signature, as in sacrebleu. Empty if each line has one."""
    numbers = {len(line) for line in references}
    if numbers == {1}:
        return ""
    return f"nrefs:{numbers.pop()}|" if len(numbers) == 1 else "nrefs:var|"
