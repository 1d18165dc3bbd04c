"""How well attention finds the word that was translated, and which head does it best."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attendo.errors import UsageError

Link = tuple[int, int]  # source, target; from 0


@dataclass(frozen=True)
class HeadScore:
    """One head over many sentences; layer and head count from 0."""

    layer: int
    head: int
    right: int
    counted: int

    @property
    def accuracy(self) -> float:
        """Share of the counted target tokens whose strongest weight lies on a gold source token."""
        return self.right / self.counted


@dataclass(frozen=True)
class LinkCounts:
    """Links that were found beside those of gold: A found, S sure, P possible, which the sure ones are too."""

    found: int = 0  # |A|
    sure: int = 0  # |S|
    found_sure: int = 0  # |A ∩ S|
    found_possible: int = 0  # |A ∩ P|

    @staticmethod
    def of(found: Collection[Link], sure: Collection[Link], possible: Collection[Link] = ()) -> "LinkCounts":
        """Of one sentence; `possible` need not name the sure ones again."""
        looked_up, certain = set(found), set(sure)
        allowed = certain | set(possible)
        return LinkCounts(len(looked_up), len(certain), len(looked_up & certain), len(looked_up & allowed))

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(
            self.found + other.found,
            self.sure + other.sure,
            self.found_sure + other.found_sure,
            self.found_possible + other.found_possible,
        )

    @property
    def error_rate(self) -> float | None:
        """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 to 1 (Och and Ney 2003); None where there is no link at all."""
        links = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / links if links else None


class HeadScores:
    """Sums right and counted tokens for each head, sentence by sentence."""

    def __init__(self) -> None:
        self._totals: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, layer: int, head: int, weights: ArrayLike, gold: Collection[tuple[int, int]]) -> None:
        """Take in one sentence of one head; see `alignment_accuracy` for what is counted."""
        right, counted = alignment_accuracy(weights, gold)
        before_right, before_counted = self._totals.get((layer, head), (0, 0))
        self._totals[layer, head] = before_right + right, before_counted + counted

    def scores(self) -> list[HeadScore]:
        """Every head that had something to count, by layer and head."""
        return [HeadScore(*place, *total) for place, total in sorted(self._totals.items()) if total[1]]

    def best(self) -> HeadScore:
        """The most accurate head; of equals, the first."""
        scores = self.scores()
        if not scores:
            raise UsageError("no_aligned_tokens_counted")
        return max(scores, key=lambda score: score.accuracy)


def alignment_accuracy(weights: ArrayLike, gold: Collection[tuple[int, int]]) -> tuple[int, int]:
    """(right, counted) over the target rows that have a gold link: is the largest weight on one of its columns?

    `weights` is [T, S], rows the predicted tokens. `gold` holds (source, target) pairs from 0, as the built-in task
    writes them. Columns beyond the gold words, such as eos, may be looked at, and are then wrong.
    """
    matrix = np.asarray(weights)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise UsageError("alignment_weights_not_matrix", shape=list(matrix.shape))
    if np.isnan(matrix).any():
        raise UsageError("alignment_weights_nan")
    links: dict[int, set[int]] = {}
    for source, target in gold:
        if not (0 <= target < matrix.shape[0] and 0 <= source < matrix.shape[1]):
            raise UsageError(
                "gold_link_outside_weights",
                source=source,
                target=target,
                sources=matrix.shape[1],
                targets=matrix.shape[0],
            )
        links.setdefault(target, set()).add(source)
    looked_at = matrix.argmax(axis=1)
    return sum(int(looked_at[target]) in sources for target, sources in links.items()), len(links)
