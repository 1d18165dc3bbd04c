"""Many sequences of ids in one flat array: what lies in shards and pools, and is cut into batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Sequences:
    """The i-th sequence is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> "Sequences":
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        offsets = _ends(lengths)
        return cls(np.fromiter(chain.from_iterable(lists), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def joined(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """The sequences of all parts, in their order."""
        if not parts:
            return cls.of([])
        ids = np.concatenate([part.ids for part in parts])
        return cls(ids, _ends(np.concatenate([part.lengths for part in parts])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> "Sequences":
        """The sequences of these numbers, in this order."""
        lengths = self.lengths[rows]
        offsets = _ends(lengths)
        # Where each id of the result lies here: the start of its sequence, and its place in it.
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Sequences(self.ids[places], offsets)

    def part(self, first: int, last: int) -> "Sequences":
        """The sequences from `first` up to but not including `last`."""
        begin, end = self.offsets[first], self.offsets[last]
        return Sequences(self.ids[begin:end], self.offsets[first : last + 1] - begin)

    def __getitem__(self, row: int) -> list[int]:
        ids: list[int] = self.ids[self.offsets[row] : self.offsets[row + 1]].tolist()
        return ids


def _ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
