"""Corpora of a run, from files or the built-in task, and batches with prefix tokens."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.data.batch import Batch
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, CorpusRow, FileCorpus
from attendo.data.index import read_index
from attendo.data.lm_text import make_text_files
from attendo.data.preparation import Workers
from attendo.data.prepare import Preparing, Tokenizers, prepare
from attendo.data.prepared import PreparedData
from attendo.data.sampler import BUFFER_PAIRS, START_POSITION, BatchStream, BatchWithPosition, Position
from attendo.demo_task import BuiltinTask
from attendo.interop.load import load_stored_model
from attendo.runs.auto_config import DataStats, measure_pairs
from attendo.runs.config import RunConfig
from attendo.text import PAD
from attendo.text.config import TokenizerConfig
from attendo.text_model.inputs import ModelSymbols

BUILTIN_VALID_PAIRS = 1000


@dataclass(frozen=True)
class BuiltinCorpus:
    """Sentences of the built-in grammar: training pairs, or pairs with held-out combinations."""

    seed: int
    pairs: int
    heldout: bool = False
    aligned: bool = False  # with its gold alignments
    weight: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return "built-in task, held out" if self.heldout else "built-in task"

    def rows(self) -> Iterator[CorpusRow]:
        task = BuiltinTask(self.seed)
        pairs = iter(task.heldout(self.pairs)) if self.heldout else islice(task.train(), self.pairs)
        for number, pair in enumerate(pairs, start=1):
            links = pair.text_alignment if self.aligned else None
            yield CorpusRow(number, pair.source, pair.target, None, links)


@dataclass(frozen=True)
class ConcatCorpus:
    """Several corpora concatenated, for validation."""

    corpora: tuple[Corpus, ...]
    weight: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return f"{self.corpora[0].name} and {len(self.corpora) - 1} more"

    def rows(self) -> Iterator[CorpusRow]:
        rows = (row for part in self.corpora for row in part.rows())
        return (row._replace(number=number) for number, row in enumerate(rows, start=1))


def make_corpora(config: DataConfig, seed: int) -> tuple[Sequence[Corpus], Corpus | None]:
    """Return the training corpora, and the validation corpus if it is separate."""
    if config.task == "builtin":
        aligned = config.has_builtin_alignments
        valid_pairs = BuiltinCorpus(seed, BUILTIN_VALID_PAIRS, heldout=True, aligned=aligned)
        return [BuiltinCorpus(seed, config.pairs, aligned=aligned)], valid_pairs
    valid = [FileCorpus(each) for each in config.validation]
    together = ConcatCorpus(tuple(valid)) if len(valid) > 1 else next(iter(valid), None)
    return [FileCorpus(each) for each in config.training], together


def prepare_corpora(config: RunConfig, folder: Path, workers: Workers | None = None) -> Iterator[Preparing]:
    """Prepare the text of a run in a folder. With `start_from`, the tokenizers are those of that model.

    With `workers`, the same call continues one that was killed.
    """
    training, valid = make_corpora(config.data, config.seed)
    tokenizer: TokenizerConfig | Tokenizers = config.tokenizer
    if config.start_from is not None:
        model = load_stored_model(config.start_from)
        tokenizer = model.source_tokenizer, model.target_tokenizer
    yield from prepare(training, valid, config.data, tokenizer, config.seed, folder, workers)


def read_data_config(prepared: Path) -> DataConfig:
    """Return the data settings that prepared data was made with."""
    return DataConfig(**read_index(prepared)[0].settings["data"])


def measure_data(config: DataConfig, seed: int) -> DataStats:
    """Measure the training text. Bad lines are not counted."""
    if config.prepared is not None:
        index, _ = read_index(config.prepared)
        joint = any(name.startswith("joint.") for name in index.files)
        kind = index.settings["tokenizer"].get("kind")
        if index.window is not None:
            return DataStats(
                index.pairs,
                index.pairs * read_data_config(config.prepared).window_stride,
                float(joint),
                kind,
                index.window,
            )
        return DataStats(index.pairs, index.target_tokens + index.pairs, float(joint), kind)
    if config.text is not None:
        characters = make_text_files(config)[0].measure().characters
        return DataStats(characters // config.window_stride, characters, 1.0, window=config.window)
    training, _ = make_corpora(config, seed)
    return measure_pairs((row.source, row.target) for corpus in training for row in corpus.rows() if row.fault is None)


class PrefixedStream(BatchStream):
    """A batch stream with the symbols of the model around all sources and at the start of all targets."""

    def __init__(
        self,
        prepared: PreparedData,
        batch_tokens: int,
        seed: int,
        dropout: float,
        symbols: ModelSymbols,
        sort_within: int = BUFFER_PAIRS,
        input_noise: float = 0.0,
    ) -> None:
        super().__init__(prepared, batch_tokens, seed, dropout, sort_within, input_noise)
        self._symbols = symbols

    def batches(
        self, position: Position = START_POSITION, workers: int = 0, pin: bool = False
    ) -> Generator[BatchWithPosition, None, None]:
        if not self._symbols:
            yield from super().batches(position, workers, pin)
            return
        pinned = pin and torch.cuda.is_available()
        with closing(super().batches(position, workers)) as plain:
            for placed in plain:
                batch = with_symbols(placed.batch, self._symbols)
                yield replace(placed, batch=batch.pin() if pinned else batch)


def with_symbols(batch: Batch, symbols: ModelSymbols) -> Batch:
    """Add the symbols to every source, and `begin` after BOS to every target. The target's prefix is predicted too."""
    rows, begin = batch.source_ids.size(0), symbols.begin
    source_ids, source_mask = _add_source_symbols(batch.source_ids, batch.source_mask, symbols)
    made = Batch(
        source_ids=source_ids,
        source_mask=source_mask,
        target_ids=torch.cat((batch.target_ids[:, :1], _columns(begin, rows), batch.target_ids[:, 1:]), dim=1),
        labels=torch.cat((_columns(begin, rows), batch.labels), dim=1),
        numbers=batch.numbers,
        tokens=batch.tokens + rows * len(begin),
        source_tokens=batch.source_tokens + rows * symbols.source_tokens,
    )
    return made if batch.links is None else made.with_links(batch.links, len(symbols.before), len(begin))


def _add_source_symbols(
    ids: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None, symbols: ModelSymbols
) -> tuple[Int[Tensor, "B W"], Bool[Tensor, "B W"] | None]:
    """Put the prefix before every source, and the suffix after its EOS, before the padding."""
    rows, after = ids.size(0), symbols.after
    ids = torch.cat((_columns(symbols.before, rows), ids, _columns((PAD,) * len(after), rows)), dim=1)
    if mask is None:
        ids[:, ids.size(1) - len(after) :] = _columns(after, rows)
        return ids, None
    mask = torch.cat((mask.new_ones(rows, symbols.source_tokens), mask), dim=1)
    places = mask.sum(dim=1, keepdim=True) - len(after) + torch.arange(len(after))
    return ids.scatter(1, places, _columns(after, rows)), mask


def _columns(ids: Sequence[int], rows: int) -> Int[Tensor, "B P"]:
    return torch.tensor([list(ids)] * rows, dtype=torch.int64)
