"""Stretches of text where source and target belong to different lines: one side has lost or gained a line.

How long a target is says much about how long its source is. Let p(t | s) be the share of targets of length t among the
pairs whose source has length s, counted over the whole corpus in classes of length. If the targets of a stretch have
slipped by k lines, then

    ∑ log p(target i + k | source i) - log p(target i | source i)

grows with every pair of it, and elsewhere it falls. It is the logarithm of a ratio of likelihoods: a sum above s turns
up by chance in about e^-s of all places. So the best path through the lags is looked for, in which a stretch must gain
LEAST_SUM to be worth leaving lag 0 for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]

LAGS = tuple(lag for lag in range(-10, 11) if lag)
MOST_CLASSES = 16
LEAST_PAIRS = 20
LEAST_SUM = 25.0  # nats: with a million pairs and all lags, one false alarm in a thousand corpora
LEAST_GAIN = 0.3  # of what a pair of a truly slipped stretch gains on average
TELLING = 0.2  # nats: where a pair gains less than that, lengths are not related closely enough to tell


@dataclass(frozen=True)
class Slipped:
    """Pairs from `first` up to but not including `last`: the target of source i stands at i + lag."""

    stretch: int
    first: int
    last: int
    lag: int
    sum: float


@dataclass(frozen=True)
class Alignment:
    """What the lengths tell. `gain` is what each slipped pair would add, in nats."""

    gain: float
    slipped: tuple[Slipped, ...]

    @property
    def telling(self) -> bool:
        return self.gain >= TELLING


def find_slipped(stretches: Sequence[tuple[Lengths, Lengths]]) -> Alignment:
    """`stretches` are lengths of source and target of neighbouring pairs, all from one corpus."""
    classes = _classes(stretches)
    table, gain = _best_table(classes)
    if gain < TELLING:
        return Alignment(gain, ())
    found = [
        slipped
        for number, (source, target) in enumerate(classes)
        for slipped in _in_stretch(number, source, target, table, gain)
    ]
    return Alignment(gain, tuple(found))


def _classes(stretches: Sequence[tuple[Lengths, Lengths]]) -> list[tuple[Lengths, Lengths]]:
    """Lengths as numbers of classes that hold about equally many sentences."""
    sides = []
    for side in range(2):
        lengths = np.concatenate([stretch[side] for stretch in stretches])
        classes = int(np.clip(len(lengths) ** (1 / 3), 2, MOST_CLASSES))
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, classes + 1)[1:-1]))
        sides.append([np.searchsorted(edges, stretch[side], side="right") for stretch in stretches])
    return list(zip(*sides, strict=True))


def _best_table(classes: Sequence[tuple[Lengths, Lengths]]) -> tuple[NDArray[np.float64], float]:
    """log p(target | source) from the pairs as they stand, unless another lag is far better: then all has slipped."""
    tables = {lag: _table(classes, lag) for lag in (0, *LAGS)}
    best = max(tables, key=lambda lag: tables[lag][1])
    return tables[best] if tables[best][1] > 2 * tables[0][1] + TELLING else tables[0]


def _table(classes: Sequence[tuple[Lengths, Lengths]], lag: int) -> tuple[NDArray[np.float64], float]:
    """log p(target | source), and how much more a pair of that lag has of it than two sentences that are no pair."""
    shape = tuple(1 + max(int(stretch[side].max()) for stretch in classes) for side in range(2))
    counts = np.zeros(shape)
    for source, target in classes:
        here, there = _at_lag(len(source), lag)
        np.add.at(counts, (source[here], target[there]), 1)
    targets = (counts.sum(0) + 0.5) / (counts.sum() + 0.5 * shape[1])
    weight = 2.0  # pairs' worth of the targets' own distribution, for sources that are rare
    table = np.log((counts + weight * targets) / (counts.sum(1, keepdims=True) + weight))
    joint = counts / max(1.0, counts.sum())
    apart = np.outer(joint.sum(1), joint.sum(0))
    return table, float(((joint - apart) * table).sum())


def _at_lag(pairs: int, lag: int) -> tuple[slice, slice]:
    """The sources that have a target at that lag, and those targets."""
    return slice(max(0, -lag), max(0, min(pairs, pairs - lag))), slice(max(0, lag), max(0, min(pairs, pairs + lag)))


def _in_stretch(
    number: int, source: Lengths, target: Lengths, table: NDArray[np.float64], gain: float
) -> Iterator[Slipped]:
    """The parts of the best path that are not at lag 0, where no other lag does nearly as well."""
    if all(_largest_sum(_scores(source, target, table, lag)) < LEAST_SUM for lag in LAGS):
        return
    scores = np.stack([_scores(source, target, table, lag).astype(np.float32) for lag in (0, *LAGS)], axis=1)
    path = _best_path(scores)
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    for first, last in pairwise(borders):
        lag, sums = int(path[first]), scores[first:last].sum(0, dtype=np.float64)
        total, next_best = sums[lag], np.delete(sums, lag)[1:].max()
        enough = last - first >= LEAST_PAIRS and total >= max(LEAST_SUM, LEAST_GAIN * gain * (last - first))
        if lag and enough and total - next_best >= LEAST_SUM / 2:
            yield Slipped(number, first, last, (0, *LAGS)[lag], float(total))


def _scores(source: Lengths, target: Lengths, table: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    here, there = _at_lag(len(source), lag)
    scores = np.zeros(len(source))
    scores[here] = table[source[here], target[there]] - table[source[here], target[here]]
    return scores


def _largest_sum(scores: NDArray[np.float64]) -> float:
    """Of any stretch."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    return float((sums - np.minimum.accumulate(sums)).max())


def _best_path(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Which column to be in at each row, so that the sum is largest if every change of column costs half a stretch."""
    cost = LEAST_SUM / 2
    best = np.full(scores.shape[1], -cost)
    best[0] = 0.0
    leaders = np.zeros(len(scores), np.int64)
    stays = np.zeros(scores.shape, np.bool_)
    for row, gained in enumerate(scores):
        leaders[row] = leader = best.argmax()
        change = best[leader] - cost
        np.greater_equal(best, change, out=stays[row])
        best = np.maximum(best, change) + gained
    path = np.zeros(len(scores), np.int64)
    here = int(best.argmax())
    for row in range(len(scores) - 1, -1, -1):
        path[row] = here
        here = here if stays[row, here] else int(leaders[row])
    return path
