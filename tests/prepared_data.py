"""Prepared data for tests, from pairs of text or directly from lengths."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attendo.data.batch import RaggedArray
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, CorpusRow
from attendo.data.prepare import prepare
from attendo.data.prepared import PreparedCorpus, PreparedData, open_prepared
from attendo.data.shards import ShardSet, ShardWriter
from attendo.text import Words
from attendo.text.config import TokenizerConfig

TextPair = tuple[str, str]

WORDS = TokenizerConfig(kind="words")


@dataclass(frozen=True)
class ListCorpus:
    """A corpus in memory."""

    pairs: Sequence[TextPair]
    name: str = "list"
    weight: float = 1.0
    faults: dict[int, str] = field(default_factory=dict)

    def rows(self) -> Iterator[CorpusRow]:
        for number, (source, target) in enumerate(self.pairs, start=1):
            yield CorpusRow(number, source, target, self.faults.get(number))


def sentences(count: int, seed: int = 0) -> list[TextPair]:
    """Distinct pairs: each has its number on both sides."""
    dice = random.Random(seed)
    return [
        (" ".join([f"s{n}", *"abcdefgh"[: dice.randrange(8)]]), " ".join([f"t{n}", *"uvwxyz"[: dice.randrange(6)]]))
        for n in range(count)
    ]


def prepare_all(folder: Path, *training: Corpus, valid: Corpus | None = None, **settings: Any) -> PreparedData:
    """Prepare the corpora with words as tokens and open the result."""
    tokenizer = settings.pop("tokenizer", WORDS)
    seed = settings.pop("seed", 1)
    for _ in prepare(training, valid, DataConfig(task="builtin", **settings), tokenizer, seed, folder):
        pass
    return open_prepared(folder)


def from_lengths(
    folder: Path, corpora: Sequence[Sequence[tuple[int, int]]], weights: Sequence[float] = (), shard_bytes: int = 500
) -> PreparedData:
    """Data whose pairs have these numbers of source and target tokens. The ids of a pair encode its number."""
    tokenizer = Words.build(["nothing"])
    opened, number, vocabulary = [], 0, 4 + sum(map(len, corpora))
    for index, pairs in enumerate(corpora):
        writer = ShardWriter(folder, f"train-{index:02d}", 2, shard_bytes)
        for chunk in (pairs[first : first + 8] for first in range(0, len(pairs), 8)):
            ids = [([4 + number + n] * source, [4 + number + n] * target) for n, (source, target) in enumerate(chunk)]
            writer.add(
                RaggedArray.from_lists([source for source, _ in ids]),
                RaggedArray.from_lists([target for _, target in ids]),
            )
            number += len(chunk)
        shards = ShardSet(folder, writer.close(), (vocabulary, vocabulary))
        weight = weights[index] if weights else 1.0
        opened.append(PreparedCorpus(f"corpus {index}", weight, shards, sum(map(sum, pairs)), {}))
    return PreparedData(
        folder, tokenizer, tokenizer, tuple(opened), [], number, 0, 0, max_length=1024, settings_hash="", fingerprint=""
    )
