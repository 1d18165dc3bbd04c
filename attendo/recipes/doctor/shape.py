"""The shape of a batch, which decides what it costs."""

from dataclasses import dataclass

from attendo.data.batch import Batch, Example, collate, collate_windows
from attendo.data.sequences import Sequences
from attendo.text import EOS


@dataclass(frozen=True)
class Shape:
    """In positions, control tokens and padding included; running text has no source."""

    rows: int
    source: int
    target: int

    def batch(self) -> Batch:
        """Made up: memory does not ask which tokens they are."""
        if not self.source:
            return collate_windows(Sequences.of([[EOS] * self.target] * self.rows))
        pair = Example([EOS] * (self.source - 1), [EOS] * (self.target - 1))
        return collate([pair] * self.rows)

    def __str__(self) -> str:
        if not self.source:
            return f"{self.rows:,} windows of {self.target:,} tokens"
        return f"{self.rows:,} rows, {self.source:,} source and {self.target:,} target positions wide"
