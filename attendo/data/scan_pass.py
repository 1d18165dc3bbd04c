"""The first reading of all text: what to learn the vocabulary from, and which pairs to keep back for validation.

Both are chosen by keys of the seed and the text, so they do not depend on how the text was read, and both need an
amount of memory that does not grow with it.
"""

import hashlib
import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from attendo import keyed_random
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, encoding_advice, field_advice
from attendo.data.filtering import BadLines, screened
from attendo.data.staging import NewFolder

SAMPLE_PAIRS = 200_000
SAMPLE_CHARACTERS = 30_000_000
KEPT_BACK_PAIRS = 1000
KEPT_BACK_SHARE = 20  # at most one pair in so many

TextPair = tuple[str, str]


@dataclass(frozen=True)
class Survey:
    """What the first reading found."""

    lines: tuple[int, ...]  # of each training corpus, and at the end of the validation corpus
    sample: list[TextPair]  # to learn the vocabulary from; no pair of it is kept back
    kept_back: frozenset[int]  # keys of sources


def read_through(
    training: Sequence[Corpus],
    valid: Corpus | None,
    settings: DataConfig,
    seed: int,
    place: NewFolder,
    sample: "Sample",
) -> Generator[int, None, Survey]:
    """Yields the lines read so far. Text with too many bad lines is refused, with their list at `place`."""
    kept_back = KeptBack(seed)
    lines: list[int] = []
    with place.bad_lines.open("w", encoding="utf-8") as listing:
        for corpus in (*training, *(() if valid is None else (valid,))):
            bad = BadLines(corpus.name, listing)
            for block in screened(corpus):
                bad.add(block.lines, block.faults)
                if corpus is not valid:
                    sample.offer([(row.source, row.target) for row in block.good])
                    kept_back.offer([row.source for row in block.good] if valid is None else [])
                yield sum(lines) + bad.lines
            bad.check(
                settings.max_bad_ratio,
                place.bad_lines,
                encoding_advice(corpus, bad.counts) or field_advice(corpus, bad.counts),
            )
            lines.append(bad.lines)
    chosen = kept_back.chosen()
    pairs = sample.pairs()
    keys = source_keys(seed, [source for source, _ in pairs]).tolist()
    learnt_from = [pair for pair, key in zip(pairs, keys, strict=True) if key not in chosen]
    return Survey(tuple(lines), learnt_from, chosen)


class Sample:
    """Pairs spread evenly over all that are offered; all of them where they are few.

    Every pair has a number drawn for it, and those with the smallest are kept, as many as there is room for.
    """

    def __init__(self, seed: int, pairs: int = SAMPLE_PAIRS, characters: int = SAMPLE_CHARACTERS) -> None:
        self._seed, self._most_pairs, self._most_characters = seed, pairs, characters
        self._offered = 0
        self._characters = 0
        self._kept: list[tuple[float, int, TextPair]] = []  # a heap with the largest number drawn on top
        self._below = 1.0

    def offer(self, pairs: Sequence[TextPair]) -> None:
        numbers = np.arange(self._offered, self._offered + len(pairs), dtype=np.uint64)
        self._offered += len(pairs)
        drawn = keyed_random.uniform(keyed_random.keys(self._seed, "sample", numbers))
        for place in np.flatnonzero(drawn < self._below).tolist():
            if drawn[place] < self._below:  # the ones before may have lowered it
                heapq.heappush(self._kept, (-float(drawn[place]), int(numbers[place]), pairs[place]))
                self._characters += _characters(pairs[place])
                self._make_room()

    def pairs(self) -> list[TextPair]:
        """In the order of the text."""
        return [pair for _, _, pair in sorted(self._kept, key=lambda kept: kept[1])]

    def _make_room(self) -> None:
        while len(self._kept) > self._most_pairs or (self._characters > self._most_characters and len(self._kept) > 1):
            drawn, _, pair = heapq.heappop(self._kept)
            self._characters -= _characters(pair)
            self._below = -drawn


class KeptBack:
    """Which sources to keep back for validation: all pairs of a source, or none, so that no source is on both sides."""

    def __init__(self, seed: int, most: int = KEPT_BACK_PAIRS) -> None:
        self._seed, self._most = seed, most
        self._pairs: dict[int, int] = {}  # how many pairs each source has, of the sources with the smallest keys
        self._below = 2**64
        self._offered = 0

    def offer(self, sources: Sequence[str]) -> None:
        keys = source_keys(self._seed, sources)
        self._offered += len(sources)
        for key in keys[keys < self._below].tolist() if self._below < 2**64 else keys.tolist():
            self._pairs[key] = self._pairs.get(key, 0) + 1
        if len(self._pairs) > 4 * self._most:
            smallest = sorted(self._pairs)[: 2 * self._most]
            self._pairs = {key: self._pairs[key] for key in smallest}
            self._below = smallest[-1] + 1

    def chosen(self) -> frozenset[int]:
        """Keys of sources with about a twentieth of the pairs: at least one pair, and never all."""
        if len(self._pairs) < 2:
            return frozenset()
        room = max(1, min(self._offered // KEPT_BACK_SHARE, self._most))
        keys: list[int] = []
        for key in sorted(self._pairs):
            if self._pairs[key] <= room:
                keys.append(key)
                room -= self._pairs[key]
        rarest = min(self._pairs, key=lambda key: (self._pairs[key], key))
        return frozenset(keys or [rarest])


def source_keys(seed: int, sources: Sequence[str]) -> keyed_random.Keys:
    """A key for each source; the same text has the same one."""
    digests = b"".join(hashlib.blake2b(source.encode(), digest_size=8).digest() for source in sources)
    return keyed_random.keys(seed, "validation", np.frombuffer(digests, "<u8"))


def _characters(pair: TextPair) -> int:
    return len(pair[0]) + len(pair[1])
