"""Numbers of a model as sums over lines, and paired bootstrap tests of two models over one seed or several.

Every measure is a formula over the sums of the statistics of lines: BLEU, a mean, a ratio. So one bootstrap serves all.
A test of several seeds resamples lines, and takes the mean of the seeds' differences on the same lines. It does not
resample seeds. A difference counts only if the test is significant and all seeds have the same sign.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attendo.metrics.scores import make_metric
from attendo.metrics.significance import SIGNIFICANCE_LEVEL, bootstrap_differences, confidence_interval, p_value

from .faults import find_detached, find_loops, share_of_similar

SAMPLES, SEED = 1000, 12345
DIGITS = 4
LATER = slice(1, 4)  # d = 2, 3, 4 of the recovery

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """Statistics of each line, and the formula of their sums."""

    rows: Floats
    formula: Callable[[Sequence[float]], float]

    @property
    def value(self) -> float:
        return self.formula(self.rows.sum(0).tolist())


def ratio(sums: Sequence[float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0


def percent(sums: Sequence[float]) -> float:
    return 100 * ratio(sums)


def average(values: Floats) -> Measure:
    """Return the mean over lines. NaN does not count."""
    known = np.isfinite(values)
    return Measure(np.stack([np.where(known, values, 0.0), known.astype(float)], axis=1), ratio)


def share(flags: NDArray[np.bool_]) -> Measure:
    """Return the percentage of lines."""
    return Measure(np.stack([flags.astype(float), np.ones(len(flags))], axis=1), percent)


def measure_outputs(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str], contrasts: Floats, limit: float
) -> dict[str, Measure]:
    """Return the scores of the outputs, their lengths and repetitions, and the shares with faults."""
    found: dict[str, Measure] = {}
    for name in ("bleu", "chrf"):
        metric = make_metric(name, references, None, outputs)
        found[name] = Measure(np.array(metric.statistics(outputs), np.float64), metric.value)
    words = [text.split() for text in outputs]
    lengths = [[len(one), len(other.split())] for one, other in zip(words, references, strict=True)]
    found["length"] = Measure(np.array(lengths, np.float64), ratio)
    repeated = [[sum(one == other for one, other in pairwise(line)), len(line)] for line in words]
    found["repeated"] = Measure(np.array(repeated, np.float64), percent)
    loops = find_loops(sources, outputs)
    detached = find_detached(contrasts, limit, share_of_similar(outputs, references))
    return {**found, "loop": share(loops), "detached": share(detached), "hallucinated": share(loops | detached)}


def measure_recovery(log_probs: Sequence[Sequence[float]], recovery: Mapping[str, Sequence[Any]]) -> dict[str, Measure]:
    """Return the loss of the references and the damage of a corrupted token: at d = 1, and the mean of d = 2 to 4.

    `log_probs` has the sum and the number of the tokens of each reference.
    """
    found = {"nll": Measure(np.array([[-total, count] for total, count in log_probs], np.float64), ratio)}
    for name, lines in recovery.items():
        values = np.array([[np.nan if each is None else each for each in line] for line in lines], np.float64)
        later, known = values[:, LATER], np.isfinite(values[:, LATER])
        sums = [np.where(known, later, 0.0).sum(1), known.sum(1).astype(float)]
        found[f"{name}_1"] = average(values[:, 0])
        found[f"{name}_2_to_4"] = Measure(np.stack(sums, axis=1), ratio)
    return found


def compare(one: Sequence[Measure], other: Sequence[Measure]) -> dict[str, Any]:
    """Compare a measure of two systems, each with one measure per seed, by paired bootstrap over lines.

    The difference is one - other. `significant` asks for p < 0.05, an interval without 0, and one sign for all seeds.
    """
    formula, columns, seeds = one[0].formula, one[0].rows.shape[1], len(one)

    def value(sums: Sequence[float]) -> float:
        return sum(formula(sums[columns * each : columns * (each + 1)]) for each in range(seeds)) / seeds

    differences = [left.value - right.value for left, right in zip(one, other, strict=True)]
    rows = (np.hstack([each.rows for each in side]) for side in (one, other))
    sampled = bootstrap_differences(value, *rows, SAMPLES, SEED)  # type: ignore[arg-type]
    difference = sum(differences) / seeds
    low, high = confidence_interval(sampled)
    p = p_value(sampled, difference)
    same_sign = all(each > 0 for each in differences) or all(each < 0 for each in differences)
    significant = p < SIGNIFICANCE_LEVEL and not low <= 0 <= high and same_sign
    rounded = {"difference": difference, "low": low, "high": high, "p": p}
    return {
        **{name: shorten(number) for name, number in rounded.items()},
        "seeds": [shorten(each) for each in differences],
        "significant": bool(significant),
    }


def shorten(number: float) -> float:
    """Round to four decimals."""
    return round(float(number), DIGITS)
