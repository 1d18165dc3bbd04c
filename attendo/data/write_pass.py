"""Second pass over all text: tokenise, filter by length, write shards."""

import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from io import TextIOBase
from pathlib import Path

from attendo.data.batch import RaggedArray
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus, CorpusRow
from attendo.data.filtering import BadLines, RowBlock, filter_rows, find_length_fault
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.pharaoh import Link
from attendo.data.scan_pass import CorpusScan, source_keys
from attendo.data.shards import LINK_BYTES, ShardRecord, ShardWriter
from attendo.data.staging import StagingFolder
from attendo.data.token_links import TokenWords, flatten_links
from attendo.errors import DataError
from attendo.text import Tokenizer


@dataclass(frozen=True)
class WriterOutputs:
    """Output files of the writer."""

    folder: StagingFolder
    listing: TextIOBase  # of bad lines
    valid_texts: TextIOBase


class LinkWriter:
    """Writes links of words as shards with the same pairs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._shards = ShardWriter(folder, name, LINK_BYTES)

    @property
    def size(self) -> int:
        """Size of all shards in bytes, including unwritten data."""
        return self._shards.size

    def add(self, links: RaggedArray) -> None:
        self._shards.add(links, RaggedArray.from_lists([()] * len(links)))

    def close(self) -> tuple[ShardRecord, ...]:
        """Write the remaining links and return the records of all shards."""
        return self._shards.close()


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
        self._num_truncated = self._num_unlinked = 0
        self._token_words: tuple[TokenWords, TokenWords] | None = None

    def write_training_corpus(self, corpus: Corpus) -> Generator[int, None, None]:
        """Write a training corpus to shards, and its held-out pairs to the validation texts."""
        number = len(self.corpora)
        bad = BadLines(corpus.name, self._outputs.listing)
        shards = ShardWriter(self._outputs.folder.path, f"train-{number:02d}", self._id_bytes)
        links = LinkWriter(self._outputs.folder.path, f"train-{number:02d}-links")
        self._num_truncated = self._num_unlinked = 0
        for block in filter_rows(corpus):
            pairs = self._encode(block, bad)
            held_out_mask = self._mark_held_out([row.source for row, _, _ in pairs])
            self._write_valid_texts(
                [row for (row, _, _), is_held_out in zip(pairs, held_out_mask, strict=True) if is_held_out]
            )
            training_pairs = [pair for pair, is_held_out in zip(pairs, held_out_mask, strict=True) if not is_held_out]
            sources = RaggedArray.from_lists([source for _, source, _ in training_pairs])
            targets = RaggedArray.from_lists([target for *_, target in training_pairs])
            shards.add(sources, targets)
            if any(row.links is not None for row in block.good):
                links.add(self._make_links([row for row, *_ in training_pairs], sources, targets))
            written = self._bytes + shards.size + links.size
            self._outputs.folder.bytes_needed = written * sum(self._scan.lines) // self.lines
            yield self.lines
        self._check_corpus(bad, self._scan.lines[number])
        records, link_records = shards.close(), links.close()
        self._bytes += shards.size + links.size
        if link_records and self._num_unlinked == sum(record.pairs for record in link_records):
            raise DataError("no_alignment_matches_tokens", corpus=corpus.name)
        self.corpora.append(
            CorpusRecord.from_shards(
                records,
                name=corpus.name,
                weight=corpus.weight,
                lines=bad.lines,
                bad=dict(bad.counts),
                cut=self._num_truncated,
                links=link_records,
                unlinked=self._num_unlinked,
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

    def _make_links(self, rows: list[CorpusRow], source: RaggedArray, target: RaggedArray) -> RaggedArray:
        """Return the links of each pair. A pair whose tokens do not have the words of its text has none."""
        if self._token_words is None:
            one, other = self._tokenizers
            words = TokenWords.of(one)
            self._token_words = words, words if other is one else TokenWords.of(other)
        both = zip(self._token_words, (source, target), strict=True)
        counts = [words.count_words(ids).tolist() for words, ids in both]
        kept: list[Iterable[Link]] = []
        for row, sources, targets in zip(rows, *counts, strict=True):
            cut = self._settings.cut_source is not None
            same = targets == len(row.target.split()) and (cut or sources == len(row.source.split()))
            self._num_unlinked += not same
            kept.append(row.links if same and row.links is not None else ())
        return flatten_links(kept)

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
        texts = [{"source": row.source, "target": row.target} for row in rows]
        for text, row in zip(texts, rows, strict=True):
            if row.links is not None:
                text["alignment"] = " ".join(f"{source}-{target}" for source, target in sorted(row.links))
        self._outputs.valid_texts.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self.valid = self.valid.replace(pairs=self.valid.pairs + len(rows))

    def _check_corpus(self, bad: BadLines, lines_before: int) -> None:
        if bad.lines != lines_before:
            raise DataError("corpus_changed_while_reading", corpus=bad.corpus, before=lines_before, after=bad.lines)
        bad.check(self._settings.max_bad_ratio, self._outputs.folder.bad_lines)
