"""First pass over all text: sample text for the tokenizer, and choose the validation split.

Both use keyed random numbers, so the result does not depend on how the text is read. Their memory is bounded.
"""

import hashlib
import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from attendo import keyed_random
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, suggest_encoding_fix, suggest_fields
from attendo.data.filtering import BadLines, filter_rows
from attendo.data.staging import StagingFolder

MAX_SAMPLE_PAIRS = 200_000
MAX_SAMPLE_CHARACTERS = 30_000_000
MAX_HELD_OUT_PAIRS = 1000
HELD_OUT_DIVISOR = 20  # at most one pair in 20

TextPair = tuple[str, str]


@dataclass(frozen=True)
class CorpusScan:
    """Result of the first pass."""

    lines: tuple[int, ...]  # of each training corpus, then of the validation corpus
    sample: list[TextPair]  # to train the tokenizer; without held-out pairs
    held_out: frozenset[int]  # keys of sources


def scan(
    training: Sequence[Corpus],
    valid: Corpus | None,
    settings: DataConfig,
    seed: int,
    folder: StagingFolder,
    sample: "ReservoirSample",
) -> Generator[int, None, CorpusScan]:
    """Scan all corpora and yield the lines read so far. Raise an error with a list if there are too many bad lines."""
    kept_back = HeldOutSplit(seed)
    lines: list[int] = []
    with folder.bad_lines.open("w", encoding="utf-8") as listing:
        for corpus in (*training, *(() if valid is None else (valid,))):
            bad = BadLines(corpus.name, listing)
            for block in filter_rows(corpus):
                bad.add(block.lines, block.faults)
                if corpus is not valid:
                    sample.offer([(row.source, row.target) for row in block.good])
                    kept_back.offer([row.source for row in block.good] if valid is None else [])
                yield sum(lines) + bad.lines
            bad.check(
                settings.max_bad_ratio,
                folder.bad_lines,
                suggest_encoding_fix(corpus, bad.counts) or suggest_fields(corpus, bad.counts),
            )
            lines.append(bad.lines)
    chosen = kept_back.select_keys()
    pairs = sample.pairs()
    keys = source_keys(seed, [source for source, _ in pairs]).tolist()
    learnt_from = [pair for pair, key in zip(pairs, keys, strict=True) if key not in chosen]
    return CorpusScan(tuple(lines), learnt_from, chosen)


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
                heapq.heappush(self._heap, (-float(drawn[index]), int(numbers[index]), pairs[index]))
                self._characters += _count_characters(pairs[index])
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

    def __init__(self, seed: int, max_pairs: int = MAX_HELD_OUT_PAIRS) -> None:
        self._seed, self._max_pairs = seed, max_pairs
        self._pairs: dict[int, int] = {}  # number of pairs per source, for the sources with the smallest keys
        self._threshold = 2**64
        self._offered = 0

    def offer(self, sources: Sequence[str]) -> None:
        keys = source_keys(self._seed, sources)
        self._offered += len(sources)
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
