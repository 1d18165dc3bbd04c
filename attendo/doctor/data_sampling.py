"""Reads prepared data for the checks in blocks, evenly sampled if the data is large."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from attendo.data.batch import Example, RaggedArray
from attendo.data.prepared import PreparedData
from attendo.data.shards import RaggedPair, ShardSet

MAX_PAIRS = 1_000_000
BLOCK_PAIRS = 16_384
PairSpan = tuple[int, int, int]  # corpus, index of its first pair, number of pairs


@dataclass(frozen=True, eq=False)
class PairBlock:
    """Consecutive pairs of one corpus."""

    corpus: int
    first: int  # index of the first pair in its corpus
    source: RaggedArray
    target: RaggedArray

    def __len__(self) -> int:
        return len(self.source)


def read_blocks(data: PreparedData, max_pairs: int = MAX_PAIRS, block_pairs: int = BLOCK_PAIRS) -> Iterator[PairBlock]:
    """Yield all pairs in order, or about `max_pairs` of them in evenly spaced blocks."""
    for number, corpus in enumerate(data.corpora):
        pairs = len(corpus.shards)
        firsts = np.arange(0, pairs, block_pairs)
        num_blocks = max(1, round(len(firsts) * max_pairs / data.pairs)) if data.pairs > max_pairs else len(firsts)
        for first in firsts[np.linspace(0, len(firsts) - 1, min(num_blocks, len(firsts))).round().astype(int)].tolist():
            source, target = corpus.shards.read(first, min(first + block_pairs, pairs))
            yield PairBlock(number, first, source, target)


class MiddleSlice(ShardSet):
    """Pairs from the middle of a shard set, because its ends may have headings or only short sentences."""

    def __init__(self, shards: ShardSet, max_pairs: int) -> None:
        self._all_shards = shards
        self._count = min(max_pairs, len(shards))
        self._first = (len(shards) - self._count) // 2

    def __len__(self) -> int:
        return self._count

    def read(self, first: int, last: int) -> RaggedPair:
        return self._all_shards.read(self._first + first, self._first + last)


def take_middle(data: PreparedData, max_pairs: int) -> PreparedData:
    """Return the data with at most `max_pairs` pairs per corpus, so that a stream starts without delay."""
    corpora = tuple(
        replace(
            corpus,
            shards=MiddleSlice(corpus.shards, max_pairs),
            links=None if corpus.links is None else MiddleSlice(corpus.links, max_pairs),
        )
        for corpus in data.corpora
    )
    return replace(data, corpora=corpora, pairs=sum(len(corpus.shards) for corpus in corpora))


def locate(spans: Iterable[PairSpan], number: int) -> tuple[int, int]:
    """Return corpus and pair index of the number-th pair of all spans."""
    for corpus, first, count in spans:
        if number < count:
            return corpus, first + number
        number -= count
    raise IndexError(f"there is no pair {number}")


def read_pair(data: PreparedData, number: int) -> Example:
    """Return the pair with this number, counted over all corpora as in `Batch.numbers`."""
    corpus, pair = locate(((n, 0, len(each.shards)) for n, each in enumerate(data.corpora)), number)
    return data.corpora[corpus].shards.example(pair)
