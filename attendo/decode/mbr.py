"""Minimum Bayes risk decoding: selects the answer that agrees most with the others (Kumar and Byrne 2004).

    expected(y) = sum over y' of weight(y') * utility(y, y') / sum over y' of weight(y')

Samples occur in proportion to their probability, so all samples have equal weight (Eikema and Aziz 2020). The n best of
a beam are all different, so there the weight is the probability itself.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attendo.errors import UsageError

# Utility of every hypothesis (row) against every reference (column). Higher is better.
Utility = Callable[[Sequence[Any], Sequence[Any]], ArrayLike]


@dataclass(frozen=True)
class MBRResult:
    """The ranking of candidates, by their index."""

    order: tuple[int, ...]  # highest expected utility first; ties go to the first given
    expected: tuple[float, ...]  # utility of each candidate


def rank_by_utility(candidates: Sequence[Any], utility: Utility, weights: Sequence[float] | None = None) -> MBRResult:
    """Rank candidates by their expected utility over all candidates as references.

    Candidates are texts or other hashable values. Equal candidates are compared once, and their weights are added.
    `weights` must not be negative. By default all weights are equal.
    """
    different = {candidate: index for index, candidate in enumerate(dict.fromkeys(candidates))}
    kind = [different[candidate] for candidate in candidates]
    share = np.bincount(kind, _check_weights(weights, len(candidates)))
    expected = _utility_matrix(utility, list(different)) @ (share / share.sum())
    each = expected[kind]
    order = np.argsort(-each, kind="stable")
    return MBRResult(tuple(order.tolist()), tuple(each.tolist()))


def probability_weights(log_probabilities: Sequence[float]) -> list[float]:
    """Return weights that sum to 1, from log-probabilities. A missing hypothesis (-∞) has weight 0."""
    most = max(log_probabilities, default=-math.inf)
    if most == -math.inf:
        raise UsageError("candidates_without_probability")
    powers = [math.exp(each - most) for each in log_probabilities]
    return [each / math.fsum(powers) for each in powers]


def _check_weights(weights: Sequence[float] | None, count: int) -> NDArray[np.float64]:
    if count == 0:
        raise UsageError("no_candidates")
    if weights is None:
        return np.ones(count)
    if len(weights) != count:
        raise UsageError("candidate_weight_count_mismatch", candidates=count, weights=len(weights))
    given = np.asarray(weights, np.float64)
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        wrong = next((each for each in weights if not (math.isfinite(each) and each >= 0)), "0 for all")
        raise UsageError("candidate_weights_invalid", weight=wrong)
    return given


def _utility_matrix(utility: Utility, different: list[Any]) -> NDArray[np.float64]:
    matrix, count = np.asarray(utility(different, different), np.float64), len(different)
    if matrix.shape != (count, count):
        raise UsageError("utility_shape_mismatch", count=count, shape=list(matrix.shape))
    if not np.isfinite(matrix).all():
        raise UsageError("utility_not_finite")
    return matrix
