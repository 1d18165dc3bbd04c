"""Reading prepared data for the checks: stretch by stretch, evenly spread where there is very much of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attendo.data.batch import Sequences
from attendo.data.prepared import Prepared
from attendo.data.shards import Pairs, ShardSet

MOST_PAIRS = 1_000_000
STRETCH_PAIRS = 16_384


@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring pairs of one corpus."""

    corpus: int
    first: int  # number of the first pair, in its corpus
    source: Sequences
    target: Sequences

    def __len__(self) -> int:
        return len(self.source)


def stretches(data: Prepared, most: int = MOST_PAIRS, at_once: int = STRETCH_PAIRS) -> Iterator[Stretch]:
    """All pairs in order, or about `most` of them."""
    for number, corpus in enumerate(data.corpora):
        pairs = len(corpus.shards)
        firsts = np.arange(0, pairs, at_once)
        kept = max(1, round(len(firsts) * most / data.pairs)) if data.pairs > most else len(firsts)
        for first in firsts[np.linspace(0, len(firsts) - 1, min(kept, len(firsts))).round().astype(int)].tolist():
            source, target = corpus.shards.read(first, min(first + at_once, pairs))
            yield Stretch(number, first, source, target)


class Middle(ShardSet):
    """Some pairs from the middle of a set: at the ends there may be headings, or all the short sentences."""

    def __init__(self, whole: ShardSet, most: int) -> None:
        self._whole = whole
        self._count = min(most, len(whole))
        self._first = (len(whole) - self._count) // 2

    def __len__(self) -> int:
        return self._count

    def read(self, first: int, last: int) -> Pairs:
        return self._whole.read(self._first + first, self._first + last)


def middle(data: Prepared, most: int) -> Prepared:
    """The same data with at most so many pairs of each corpus: a stream of it begins at once."""
    corpora = tuple(replace(corpus, shards=Middle(corpus.shards, most)) for corpus in data.corpora)
    return replace(data, corpora=corpora, pairs=sum(len(corpus.shards) for corpus in corpora))


def pair_at(data: Prepared, number: int) -> tuple[Sequence[int], Sequence[int]]:
    """The pair with this number, counted through all corpora as a batch does."""
    for corpus in data.corpora:
        if number < len(corpus.shards):
            pair = corpus.shards.example(number)
            return pair.source, pair.target
        number -= len(corpus.shards)
    raise IndexError(f"there is no pair {number}")
