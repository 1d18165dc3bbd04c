"""Alignment error rate, precision and recall of word links (Och and Ney 2003)."""

from collections.abc import Collection
from dataclasses import dataclass

Link = tuple[int, int]  # source, target; from 0


@dataclass(frozen=True)
class LinkCounts:
    """Counts of predicted and gold links: A predicted, S sure, P possible. P includes S."""

    found: int = 0  # |A|
    sure: int = 0  # |S|
    found_sure: int = 0  # |A ∩ S|
    found_possible: int = 0  # |A ∩ P|

    @staticmethod
    def from_links(found: Collection[Link], sure: Collection[Link], possible: Collection[Link] = ()) -> "LinkCounts":
        """Count the links of one sentence. `possible` need not repeat the sure links."""
        predicted, certain = set(found), set(sure)
        allowed = certain | set(possible)
        return LinkCounts(len(predicted), len(certain), len(predicted & certain), len(predicted & allowed))

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(
            self.found + other.found,
            self.sure + other.sure,
            self.found_sure + other.found_sure,
            self.found_possible + other.found_possible,
        )

    @property
    def precision(self) -> float | None:
        """|A ∩ P| / |A|, from 0 to 1; None without predicted links."""
        return self.found_possible / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """|A ∩ S| / |S|, from 0 to 1; None without sure links."""
        return self.found_sure / self.sure if self.sure else None

    @property
    def error_rate(self) -> float | None:
        """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 to 1 (Och and Ney 2003); None without links."""
        links = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / links if links else None
