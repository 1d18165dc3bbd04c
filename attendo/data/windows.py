"""Windows of running text: as many tokens as a network reads at a time, cut from a stream of ids."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from attendo.data.batch import Batch, collate_windows
from attendo.data.sequences import Sequences
from attendo.data.shards import ShardSet

Ids = NDArray[np.int32]


def overlapping(stream: Iterable[Ids], window: int, stride: int) -> Iterator[Sequences]:
    """One window begins every `stride` tokens; the last ends with the text, so that all have as many tokens.

    A text that is shorter than a window has none.
    """
    rest, last, ahead = np.zeros(0, np.int32), np.zeros(0, np.int32), 0
    for ids in stream:
        rest, last = np.concatenate((rest, ids)), np.concatenate((last, ids))[-window:]
        count = max(0, (len(rest) - window) // stride + 1)
        if count:
            yield _rows(sliding_window_view(rest, window)[::stride][:count])
            rest = rest[count * stride :]
            ahead = window - stride  # tokens of the rest that the last window had
    if len(last) == window and len(rest) > ahead:
        yield _rows(last[None])


def side_by_side(stream: Iterable[Ids], window: int) -> Iterator[Sequences]:
    """Each begins with the token that the one before ended with; the last may be shorter.

    So each token but the first of all is once a token of a window that is not its first.
    """
    rest = np.zeros(0, np.int32)
    for ids in stream:
        rest = np.concatenate((rest, ids))
        count = max(0, (len(rest) - 1) // (window - 1))
        if count:
            yield _rows(sliding_window_view(rest, window)[:: window - 1][:count])
            rest = rest[count * (window - 1) :]
    if len(rest) > 1:
        yield _rows(rest[None])


@dataclass(frozen=True)
class WindowBatches:
    """Windows in their order, read as they are asked for; the first token of each is given, not predicted."""

    windows: ShardSet
    rows: int  # of a batch

    def __iter__(self) -> Iterator[Batch]:
        for first in range(0, len(self.windows), self.rows):
            _, target = self.windows.read(first, min(first + self.rows, len(self.windows)))
            yield collate_windows(target, first_is_given=True)


def _rows(windows: NDArray[np.int32]) -> Sequences:
    count, width = windows.shape
    return Sequences(windows.reshape(-1), np.arange(count + 1, dtype=np.int64) * width)
