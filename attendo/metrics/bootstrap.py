"""What the difference of two scores might have been, had other lines of the same kind been drawn (Koehn 2004)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attendo.metrics.measure import Statistics

Differences = NDArray[np.float64]


def differences(
    value: Callable[[Sequence[float]], float], one: Statistics, other: Statistics, samples: int, seed: int
) -> Differences:
    """One a sample: as many lines as there are, drawn with replacement, the same for both."""
    generator = np.random.default_rng(seed)
    both, lines, columns = np.hstack([np.array(each, np.float64) for each in (one, other)]), len(one), len(one[0])
    found = np.empty(samples)
    for n in range(samples):
        times = np.bincount(generator.integers(lines, size=lines), minlength=lines)
        sums = (times @ both).tolist()
        found[n] = value(sums[:columns]) - value(sums[columns:])
    return found


def interval(of: Differences) -> tuple[float, float]:
    """Where 95 of 100 lie."""
    low, high = np.quantile(of, (0.025, 0.975)).tolist()
    return low, high


def p_value(of: Differences, real: float) -> float:
    """Equal outputs reach their difference of 0 every time: p is 1. One is added so that it is never 0."""
    sizes = np.abs(of)
    reached = int((sizes - sizes.mean() >= abs(real)).sum())
    return (reached + 1) / (len(sizes) + 1)
