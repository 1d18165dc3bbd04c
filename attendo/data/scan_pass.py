"""First pass over all text: filter lines, sample text for the tokenizer, and choose the validation split.

Both use keyed random numbers, so the result does not depend on how the text is read. Their memory is bounded.
"""

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.data.config import DataConfig
from attendo.data.corpus_files import TextRow
from attendo.data.corpus_windows import WindowLines
from attendo.data.duplicates import pair_keys
from attendo.data.filtering import find_text_fault
from attendo.data.line_filters import PairFilter
from attendo.data.preparation_parts import Part

MAX_SAMPLE_PAIRS = 200_000
MAX_SAMPLE_CHARACTERS = 30_000_000
MAX_HELD_OUT_PAIRS = 1000
HELD_OUT_DIVISOR = 20  # at most one pair in 20

TextPair = tuple[str, str]


class WindowScanner:
    """Finds the bad lines of windows, and hashes their pairs."""

    def __init__(self, settings: DataConfig, seed: int, holds_out: bool) -> None:
        self._filter = PairFilter(settings)
        self._drops_duplicates, self._seed, self._holds_out = settings.drop_duplicates, seed, holds_out

    def scan(self, lines: WindowLines, is_training: bool) -> Part:
        """Return the number of rows, the faults by row, and the keys of all rows without one."""
        rows = lines.rows()
        faults, good = [], list[TextPair]()
        for number, (source, target, fault, _) in enumerate(rows):
            fault = fault or find_text_fault(source, target)
            if fault is None and is_training:
                fault = self._filter.find_reason(source, target)
            if fault is None:
                good.append((source, target))
            else:
                faults.append((number, fault))
        held = [source for source, _ in good] if self._holds_out else []
        arrays = {
            "sources": source_keys(self._seed, held),
            "pairs": pair_keys(good if self._drops_duplicates else []),
        }
        return Part({"rows": len(rows), "pairs": len(good), "faults": faults}, arrays)


@dataclass(frozen=True)
class KeptPairs(Sequence[TextPair]):
    """The pairs of a window that are kept. A pair is parsed when it is read, because a sample needs only some."""

    lines: WindowLines
    rows: NDArray[np.int64]  # of the window
    has_one_row_each: bool  # every line is one row

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> TextPair: ...

    @overload
    def __getitem__(self, index: slice) -> list[TextPair]: ...

    def __getitem__(self, index: int | slice) -> TextPair | list[TextPair]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        row = int(self.rows[index])
        found = self.lines.parse(self.lines.lines[row])[0] if self.has_one_row_each else self._all_rows[row]
        return found[0], found[1]

    @cached_property
    def _all_rows(self) -> list[TextRow]:
        return self.lines.rows()


class ReservoirSample:
    """A uniform sample of all offered pairs; all of them if they fit.

    Every pair gets a random number. The pairs with the smallest numbers are kept, up to both limits.
    """

    def __init__(
        self, seed: int, max_pairs: int = MAX_SAMPLE_PAIRS, max_characters: int = MAX_SAMPLE_CHARACTERS
    ) -> None:
        self._seed, self._max_pairs, self._max_characters = seed, max_pairs, max_characters
        self._offered = 0
        self._characters = 0
        self._heap: list[tuple[float, int, TextPair]] = []  # max-heap by random number
        self._threshold = 1.0

    def offer(self, pairs: Sequence[TextPair]) -> None:
        numbers = np.arange(self._offered, self._offered + len(pairs), dtype=np.uint64)
        self._offered += len(pairs)
        drawn = keyed_random.uniform(keyed_random.make_keys(self._seed, "sample", numbers))
        for index in np.flatnonzero(drawn < self._threshold).tolist():
            if drawn[index] < self._threshold:  # earlier pairs may have lowered it
                pair = pairs[index]
                heapq.heappush(self._heap, (-float(drawn[index]), int(numbers[index]), pair))
                self._characters += _count_characters(pair)
                self._evict()

    def pairs(self) -> list[TextPair]:
        """Return the sample in text order."""
        return [pair for _, _, pair in sorted(self._heap, key=lambda entry: entry[1])]

    def _evict(self) -> None:
        while len(self._heap) > self._max_pairs or (self._characters > self._max_characters and len(self._heap) > 1):
            drawn, _, pair = heapq.heappop(self._heap)
            self._characters -= _count_characters(pair)
            self._threshold = -drawn


class HeldOutSplit:
    """Chooses sources to hold out for validation. All pairs of a source are held out, or none, to avoid overlap."""

    def __init__(self, max_pairs: int = MAX_HELD_OUT_PAIRS) -> None:
        self._max_pairs = max_pairs
        self._pairs: dict[int, int] = {}  # number of pairs per source, for the sources with the smallest keys
        self._threshold = 2**64
        self._offered = 0

    def offer(self, keys: keyed_random.Keys) -> None:
        """Add the `source_keys` of pairs."""
        self._offered += len(keys)
        for key in keys[keys < self._threshold].tolist() if self._threshold < 2**64 else keys.tolist():
            self._pairs[key] = self._pairs.get(key, 0) + 1
        if len(self._pairs) > 4 * self._max_pairs:
            smallest = sorted(self._pairs)[: 2 * self._max_pairs]
            self._pairs = {key: self._pairs[key] for key in smallest}
            self._threshold = smallest[-1] + 1

    def select_keys(self) -> frozenset[int]:
        """Return keys of sources with about 5% of the pairs: at least one pair, never all."""
        if len(self._pairs) < 2:
            return frozenset()
        room = max(1, min(self._offered // HELD_OUT_DIVISOR, self._max_pairs))
        keys: list[int] = []
        for key in sorted(self._pairs):
            if self._pairs[key] <= room:
                keys.append(key)
                room -= self._pairs[key]
        rarest = min(self._pairs, key=lambda key: (self._pairs[key], key))
        return frozenset(keys or [rarest])


def source_keys(seed: int, sources: Sequence[str]) -> keyed_random.Keys:
    """Return a key for each source. Equal texts have equal keys."""
    digests = b"".join(hashlib.blake2b(source.encode(), digest_size=8).digest() for source in sources)
    return keyed_random.make_keys(seed, "validation", np.frombuffer(digests, "<u8"))


def _count_characters(pair: TextPair) -> int:
    return len(pair[0]) + len(pair[1])
