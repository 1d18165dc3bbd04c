"""Batches of pairs of similar length, under a budget of positions."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import Example

# The row count of a full batch is a multiple of this, if the budget allows it. It then depends only on the widths, so
# that shapes recur in every epoch and captured CUDA graphs can be replayed.
ROW_MULTIPLE = 8


def make_batches(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    batch_tokens: int,
    sort_within: int | None = None,
) -> list[NDArray[np.int64]]:
    """Group rows by their lengths in positions: rows times the longest side stays within `batch_tokens`.

    A pair longer than the budget gets its own batch. Pairs of equal lengths keep their order. If `sort_within` is
    given, each group of that many rows is batched separately.
    """
    if sort_within is not None:
        firsts = range(0, len(source_lengths), sort_within)
        slices = [slice(first, first + sort_within) for first in firsts]
        parts = [make_batches(source_lengths[each], target_lengths[each], batch_tokens) for each in slices]
        return [rows + first for first, groups in zip(firsts, parts, strict=True) for rows in groups]
    longest = np.maximum(source_lengths, target_lengths)
    # Sort by the longer side, then by the length difference, in alternating direction. Neighbours then differ little on
    # both sides, which halves the padding compared with sorting by one side and then the other.
    lopsided = source_lengths - target_lengths
    order = np.lexsort((np.where(longest % 2 == 0, lopsided, -lopsided), longest))
    starts = _batch_starts(source_lengths[order].tolist(), target_lengths[order].tolist(), batch_tokens)
    return np.split(order, starts[1:]) if len(order) else []


def group_by_length(examples: Sequence[Example], batch_tokens: int) -> Iterator[list[Example]]:
    """Yield examples of similar length: rows times the longest row stays within `batch_tokens`."""
    sources = np.array([len(example.source) + 1 for example in examples], np.int64)
    targets = np.array([len(example.target) + 1 for example in examples], np.int64)
    for rows in make_batches(sources, targets, batch_tokens):
        yield [examples[row] for row in rows]


def split_by_length(texts: Sequence[str], size: int) -> list[list[int]]:
    """Return text indices in groups of at most `size`, shortest first. Similar lengths in a batch reduce padding."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    return [order[first : first + size] for first in range(0, len(order), size)]


def _batch_starts(sources: list[int], targets: list[int], batch_tokens: int) -> list[int]:
    """Return the start of each batch, given pairs in sorted order."""
    starts = [0]
    index, widths = 0, (0, 0)
    while index < len(sources):
        rows = index - starts[-1]
        wider = (max(widths[0], sources[index]), max(widths[1], targets[index]))
        if rows == 0 or (rows + 1) * max(wider) <= batch_tokens:
            widths = wider
            index += 1
            continue
        index = starts[-1] + (rows // ROW_MULTIPLE * ROW_MULTIPLE or rows)  # the remaining rows start the next batch
        starts.append(index)
        widths = (0, 0)
    return starts
