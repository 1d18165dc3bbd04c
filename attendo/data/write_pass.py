"""The second reading of all text: tokenised, screened by length, and written down as ids."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from io import TextIOBase

from attendo.data.batch import Sequences
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, Row
from attendo.data.filtering import BadLines, Block, length_fault, screened
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.scan_pass import Survey, source_keys
from attendo.data.shards import ShardWriter
from attendo.data.staging import NewFolder
from attendo.errors import DataError
from attendo.text import Tokenizer


@dataclass(frozen=True)
class Outputs:
    """Where things are written."""

    place: NewFolder
    listing: TextIOBase  # of bad lines
    valid_texts: TextIOBase


class Writing:
    """Corpus after corpus becomes shards or validation texts; the generators yield the lines read so far."""

    def __init__(
        self, settings: DataConfig, tokenizers: tuple[Tokenizer, Tokenizer], survey: Survey, seed: int, outputs: Outputs
    ) -> None:
        self.corpora: list[CorpusRecord] = []
        self.valid = ValidRecord(name=None, pairs=0, bad={})
        self.lines = 0
        self._settings, self._tokenizers, self._survey = settings, tokenizers, survey
        self._seed, self._outputs = seed, outputs
        self._id_bytes = 2 if max(each.vocab_size for each in tokenizers) <= 2**16 else 4
        self._bytes = 0
        self._cut = 0

    def training_corpus(self, corpus: Corpus) -> Generator[int, None, None]:
        """Into shards, but for the pairs that are kept back."""
        number = len(self.corpora)
        bad = BadLines(corpus.name, self._outputs.listing)
        shards = ShardWriter(self._outputs.place.new, f"train-{number:02d}", self._id_bytes)
        self._cut = 0
        for block in screened(corpus):
            pairs = self._encoded(block, bad)
            back = self._kept_back([row.source for row, _, _ in pairs])
            self._validate_with([row for (row, _, _), kept in zip(pairs, back, strict=True) if kept])
            learnt = [pair for pair, kept in zip(pairs, back, strict=True) if not kept]
            shards.add(
                Sequences.of([source for _, source, _ in learnt]), Sequences.of([target for *_, target in learnt])
            )
            self._estimate(self._bytes + shards.size)
            yield self.lines
        self._settle(bad, self._survey.lines[number])
        records = shards.close()
        self._bytes += shards.size
        self.corpora.append(
            CorpusRecord(
                name=corpus.name,
                weight=corpus.weight,
                lines=bad.lines,
                pairs=sum(record.pairs for record in records),
                source_tokens=sum(record.source_tokens for record in records),
                target_tokens=sum(record.target_tokens for record in records),
                bad=dict(bad.counts),
                cut=self._cut,
                shards=records,
            )
        )

    def valid_corpus(self, corpus: Corpus) -> Generator[int, None, None]:
        """Into the validation texts."""
        bad = BadLines(corpus.name, self._outputs.listing)
        for block in screened(corpus):
            self._validate_with([row for row, _, _ in self._encoded(block, bad)])
            yield self.lines
        self._settle(bad, self._survey.lines[-1])
        self.valid = self.valid.replace(name=corpus.name, bad=dict(bad.counts))

    def _encoded(self, block: Block, bad: BadLines) -> list[tuple[Row, list[int], list[int]]]:
        source, target = self._tokenizers
        sources = [self._shortened(ids) for ids in source.encode_many([row.source for row in block.good])]
        targets = target.encode_many([row.target for row in block.good])
        faults, pairs = dict(block.faults), []
        for row, source_ids, target_ids in zip(block.good, sources, targets, strict=True):
            if fault := length_fault(len(source_ids), len(target_ids), self._settings):
                faults[row.number] = fault
            else:
                pairs.append((row, source_ids, target_ids))
        bad.add(block.lines, faults)
        self.lines += block.lines
        return pairs

    def _shortened(self, source: list[int]) -> list[int]:
        most = self._settings.cut_source
        if most is None or len(source) <= most:
            return source
        self._cut += 1
        return source[:most]

    def _kept_back(self, sources: list[str]) -> list[bool]:
        chosen = self._survey.kept_back
        return [bool(chosen) and key in chosen for key in source_keys(self._seed, sources).tolist()]

    def _validate_with(self, rows: list[Row]) -> None:
        texts = ({"source": row.source, "target": row.target} for row in rows)
        self._outputs.valid_texts.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self.valid = self.valid.replace(pairs=self.valid.pairs + len(rows))

    def _estimate(self, size: int) -> None:
        self._outputs.place.bytes_needed = size * sum(self._survey.lines) // self.lines

    def _settle(self, bad: BadLines, lines_before: int) -> None:
        if bad.lines != lines_before:
            raise DataError("corpus_changed_while_reading", corpus=bad.corpus, before=lines_before, after=bad.lines)
        bad.check(self._settings.max_bad_ratio, self._outputs.place.bad_lines)
