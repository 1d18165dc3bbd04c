"""Second pass over all text: tokenise, filter by length, write shards."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from io import TextIOBase

from attendo.data.batch import RaggedArray
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, CorpusRow
from attendo.data.filtering import BadLines, RowBlock, filter_rows, find_length_fault
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.scan_pass import CorpusScan, source_keys
from attendo.data.shards import ShardWriter
from attendo.data.staging import StagingFolder
from attendo.errors import DataError
from attendo.text import Tokenizer


@dataclass(frozen=True)
class WriterOutputs:
    """Output files of the writer."""

    folder: StagingFolder
    listing: TextIOBase  # of bad lines
    valid_texts: TextIOBase


class ShardedWriter:
    """Writes corpora as shards or validation texts. The generators yield the lines read so far."""

    def __init__(
        self,
        settings: DataConfig,
        tokenizers: tuple[Tokenizer, Tokenizer],
        scan: CorpusScan,
        seed: int,
        outputs: WriterOutputs,
    ) -> None:
        self.corpora: list[CorpusRecord] = []
        self.valid = ValidRecord(name=None, pairs=0, bad={})
        self.lines = 0
        self._settings, self._tokenizers, self._scan = settings, tokenizers, scan
        self._seed, self._outputs = seed, outputs
        self._id_bytes = 2 if max(each.vocab_size for each in tokenizers) <= 2**16 else 4
        self._bytes = 0
        self._num_truncated = 0

    def write_training_corpus(self, corpus: Corpus) -> Generator[int, None, None]:
        """Write a training corpus to shards, and its held-out pairs to the validation texts."""
        number = len(self.corpora)
        bad = BadLines(corpus.name, self._outputs.listing)
        shards = ShardWriter(self._outputs.folder.path, f"train-{number:02d}", self._id_bytes)
        self._num_truncated = 0
        for block in filter_rows(corpus):
            pairs = self._encode(block, bad)
            held_out_mask = self._mark_held_out([row.source for row, _, _ in pairs])
            self._write_valid_texts(
                [row for (row, _, _), is_held_out in zip(pairs, held_out_mask, strict=True) if is_held_out]
            )
            training_pairs = [pair for pair, is_held_out in zip(pairs, held_out_mask, strict=True) if not is_held_out]
            shards.add(
                RaggedArray.from_lists([source for _, source, _ in training_pairs]),
                RaggedArray.from_lists([target for *_, target in training_pairs]),
            )
            self._outputs.folder.bytes_needed = (self._bytes + shards.size) * sum(self._scan.lines) // self.lines
            yield self.lines
        self._check_corpus(bad, self._scan.lines[number])
        records = shards.close()
        self._bytes += shards.size
        self.corpora.append(
            CorpusRecord.from_shards(
                records,
                name=corpus.name,
                weight=corpus.weight,
                lines=bad.lines,
                bad=dict(bad.counts),
                cut=self._num_truncated,
            )
        )

    def write_valid_corpus(self, corpus: Corpus) -> Generator[int, None, None]:
        """Write a validation corpus to the validation texts."""
        bad = BadLines(corpus.name, self._outputs.listing)
        for block in filter_rows(corpus):
            self._write_valid_texts([row for row, _, _ in self._encode(block, bad)])
            yield self.lines
        self._check_corpus(bad, self._scan.lines[-1])
        self.valid = self.valid.replace(name=corpus.name, bad=dict(bad.counts))

    def _encode(self, block: RowBlock, bad: BadLines) -> list[tuple[CorpusRow, list[int], list[int]]]:
        source, target = self._tokenizers
        sources = [self._truncate(ids) for ids in source.encode_many([row.source for row in block.good])]
        targets = target.encode_many([row.target for row in block.good])
        faults, pairs = dict(block.faults), []
        for row, source_ids, target_ids in zip(block.good, sources, targets, strict=True):
            if fault := find_length_fault(len(source_ids), len(target_ids), self._settings):
                faults[row.number] = fault
            else:
                pairs.append((row, source_ids, target_ids))
        bad.add(block.lines, faults)
        self.lines += block.lines
        return pairs

    def _truncate(self, source: list[int]) -> list[int]:
        most = self._settings.cut_source
        if most is None or len(source) <= most:
            return source
        self._num_truncated += 1
        return source[:most]

    def _mark_held_out(self, sources: list[str]) -> list[bool]:
        chosen = self._scan.held_out
        return [bool(chosen) and key in chosen for key in source_keys(self._seed, sources).tolist()]

    def _write_valid_texts(self, rows: list[CorpusRow]) -> None:
        texts = ({"source": row.source, "target": row.target} for row in rows)
        self._outputs.valid_texts.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self.valid = self.valid.replace(pairs=self.valid.pairs + len(rows))

    def _check_corpus(self, bad: BadLines, lines_before: int) -> None:
        if bad.lines != lines_before:
            raise DataError("corpus_changed_while_reading", corpus=bad.corpus, before=lines_before, after=bad.lines)
        bad.check(self._settings.max_bad_ratio, self._outputs.folder.bad_lines)
