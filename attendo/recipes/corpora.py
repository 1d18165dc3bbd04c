"""Where the pairs of a run come from: files, or the built-in task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from attendo.data.config import DataConfig
from attendo.data.index import read_index
from attendo.data.sources import Corpus, FileCorpus, Row
from attendo.data.text_writing import running_texts
from attendo.recipes.auto import Amount, measure
from attendo.recipes.builtin import BuiltinTask

BUILTIN_VALID = 1000


@dataclass(frozen=True)
class BuiltinCorpus:
    """Sentences of the built-in grammar: some to learn from, or those whose combinations are held out."""

    seed: int
    pairs: int
    heldout: bool = False
    weight: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return "built-in task, held out" if self.heldout else "built-in task"

    def rows(self) -> Iterator[Row]:
        task = BuiltinTask(self.seed)
        pairs = iter(task.heldout(self.pairs)) if self.heldout else islice(task.train(), self.pairs)
        for number, pair in enumerate(pairs, start=1):
            yield Row(number, pair.source, pair.target, None)


@dataclass(frozen=True)
class JoinedCorpus:
    """Several corpora one after the other, to validate with all of them."""

    parts: tuple[Corpus, ...]
    weight: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return f"{self.parts[0].name} and {len(self.parts) - 1} more"

    def rows(self) -> Iterator[Row]:
        rows = (row for part in self.parts for row in part.rows())
        return (row._replace(number=number) for number, row in enumerate(rows, start=1))


def corpora(config: DataConfig, seed: int) -> tuple[Sequence[Corpus], Corpus | None]:
    """To learn from, and to validate with where that is apart."""
    if config.task == "builtin":
        return [BuiltinCorpus(seed, config.pairs)], BuiltinCorpus(seed, BUILTIN_VALID, heldout=True)
    valid = [FileCorpus(each) for each in config.validation]
    together = JoinedCorpus(tuple(valid)) if len(valid) > 1 else next(iter(valid), None)
    return [FileCorpus(each) for each in config.training], together


def made_from(prepared: Path) -> DataConfig:
    """The settings that prepared data was made with: which text it was."""
    return DataConfig(**read_index(prepared)[0].settings["data"])


def amount(config: DataConfig, seed: int) -> Amount:
    """How much text there is to learn from. Bad lines are not counted."""
    if config.prepared is not None:
        index, _ = read_index(config.prepared)
        joint = any(name.startswith("joint.") for name in index.files)
        kind = index.settings["tokenizer"].get("kind")
        if index.window is not None:
            return Amount(index.pairs, index.pairs * made_from(config.prepared).step, float(joint), kind, index.window)
        return Amount(index.pairs, index.target_tokens + index.pairs, float(joint), kind)
    if config.text is not None:
        characters = running_texts(config)[0].extent().characters
        return Amount(characters // config.step, characters, 1.0, window=config.window)
    training, _ = corpora(config, seed)
    return measure((row.source, row.target) for corpus in training for row in corpus.rows() if row.fault is None)
