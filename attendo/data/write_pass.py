"""Second pass over all text: tokenise, filter by length, write shards."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import TextIOBase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import RaggedArray
from attendo.data.config import DataConfig
from attendo.data.corpus_files import DOCUMENT_END, Corpus, TextRow
from attendo.data.corpus_windows import WindowLines
from attendo.data.filtering import BadLines, find_length_fault
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.line_filters import DUPLICATE
from attendo.data.pharaoh import Link
from attendo.data.preparation_parts import Part
from attendo.data.shards import LINK_BYTES, ShardWriter
from attendo.data.staging import StagingFolder
from attendo.data.token_links import TokenWords, flatten_links
from attendo.errors import DataError
from attendo.text import Tokenizer


class WindowEncoder:
    """Tokenises windows, and finds the faults that depend on the number of tokens."""

    def __init__(self, settings: DataConfig, tokenizers: tuple[Tokenizer, Tokenizer], held_out: Iterable[int]) -> None:
        self._settings, self._tokenizers = settings, tokenizers
        self._held_out = np.array(sorted(held_out), np.uint64)
        self._dtype = f"<u{count_id_bytes(tokenizers)}"

    def encode(self, lines: WindowLines, scanned: Part, repeated: NDArray[np.bool_], is_training: bool) -> Part:
        """Return the ids of the pairs, the faults by row, and the texts for validation.

        `scanned` is the part of the first pass; `repeated` marks its pairs that are duplicates.
        """
        rows, faults = lines.rows(), dict(scanned.values["faults"])
        if len(rows) != scanned.values["rows"]:
            return Part({"rows": len(rows)}, {})
        numbers = [number for number in range(len(rows)) if number not in faults]
        held_out = np.isin(scanned.arrays["sources"], self._held_out) if len(self._held_out) else None
        dropped = repeated if is_training else np.zeros_like(repeated)
        faults |= {numbers[index]: DUPLICATE for index in np.flatnonzero(dropped).tolist()}
        places = np.flatnonzero(~dropped).tolist()
        kept = [rows[numbers[place]] for place in places]
        ids = self._encode([row[0] for row in kept], 0), self._encode([row[1] for row in kept], 1)
        pairs, valid, cut = list[EncodedPair](), list[tuple[str, str, str | None]](), 0
        for place, row, source, target in zip(places, kept, *ids, strict=True):
            most = self._settings.cut_source
            if most is not None and len(source) > most:
                source, cut = source[:most], cut + 1
            if fault := find_length_fault(len(source), len(target), self._settings):
                faults[numbers[place]] = fault
            elif not is_training or (held_out is not None and held_out[place]):
                valid.append((row[0], row[1], _format_links(row[3])))
            else:
                pairs.append(EncodedPair(row, source, target))
        values = {"rows": len(rows), "faults": sorted(faults.items()), "valid": valid, "cut": cut}
        arrays, unlinked = self._pack(pairs)
        return Part({**values, "unlinked": unlinked}, arrays)

    def _encode(self, texts: list[str], side: int) -> list[list[int]]:
        return self._tokenizers[side].encode_many(texts)

    def _pack(self, pairs: list["EncodedPair"]) -> tuple[dict[str, NDArray[np.unsignedinteger]], int]:
        """Return the arrays of a part, and the number of pairs whose links are dropped."""
        source = RaggedArray.from_lists([pair.source for pair in pairs])
        target = RaggedArray.from_lists([pair.target for pair in pairs])
        packed, unlinked = _pack_ragged("source", source, self._dtype) | _pack_ragged("target", target, self._dtype), 0
        if any(pair.row[3] is not None for pair in pairs):
            links, unlinked = self._make_links(pairs, source, target)
            packed |= _pack_ragged("links", links, f"<u{LINK_BYTES}")
        return packed, unlinked

    def _make_links(
        self, pairs: list["EncodedPair"], source: RaggedArray, target: RaggedArray
    ) -> tuple[RaggedArray, int]:
        """Return the links of each pair. A pair whose tokens do not have the words of its text has none."""
        counts = [
            words.count_words(ids).tolist() for words, ids in zip(self._token_words, (source, target), strict=True)
        ]
        kept, unlinked = list[Iterable[Link]](), 0
        for pair, sources, targets in zip(pairs, *counts, strict=True):
            source_text, target_text, _, links = pair.row
            cut = self._settings.cut_source is not None
            same = targets == len(target_text.split()) and (cut or sources == len(source_text.split()))
            unlinked += not same
            kept.append(links if same and links is not None else ())
        return flatten_links(kept), unlinked

    @cached_property
    def _token_words(self) -> tuple[TokenWords, TokenWords]:
        source, target = self._tokenizers
        words = TokenWords.of(source)
        return words, words if target is source else TokenWords.of(target)


class EncodedPair(NamedTuple):
    """A row and its ids."""

    row: TextRow
    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class WriterOutputs:
    """Output files of the writer."""

    folder: StagingFolder
    listing: TextIOBase  # of bad lines
    valid_texts: TextIOBase


class ShardedWriter:
    """Writes encoded windows as shards and validation texts."""

    def __init__(self, settings: DataConfig, tokenizers: tuple[Tokenizer, Tokenizer], outputs: WriterOutputs) -> None:
        self.corpora: list[CorpusRecord] = []
        self.valid = ValidRecord(name=None, pairs=0, bad={})
        self._settings, self._outputs = settings, outputs
        self._id_bytes = count_id_bytes(tokenizers)

    def write_training_corpus(self, corpus: Corpus, parts: Iterable[Part]) -> None:
        """Write a training corpus to shards, and its held-out pairs to the validation texts."""
        bad, cut, unlinked = BadLines(corpus.name, self._outputs.listing), 0, 0
        name = f"train-{len(self.corpora):02d}"
        shards = ShardWriter(self._outputs.folder.path, name, self._id_bytes)
        links = ShardWriter(self._outputs.folder.path, f"{name}-links", LINK_BYTES)  # of the same pairs
        for part in parts:
            self._add_part(part, bad)
            cut += part.values["cut"]
            unlinked += part.values["unlinked"]
            shards.add(_unpack(part, "source"), _unpack(part, "target"))
            if "links" in part.arrays:
                flat = _unpack(part, "links")
                links.add(flat, RaggedArray.from_lists([()] * len(flat)))
        self._check_corpus(bad)
        records, link_records = shards.close(), links.close()
        if link_records and unlinked == sum(record.pairs for record in link_records):
            raise DataError("no_alignment_matches_tokens", corpus=corpus.name)
        facts = {"name": corpus.name, "weight": corpus.weight, "lines": bad.lines, "bad": dict(bad.counts), "cut": cut}
        self.corpora.append(CorpusRecord.from_shards(records, **facts, links=link_records, unlinked=unlinked))

    def write_valid_corpus(self, corpus: Corpus, parts: Iterable[Part]) -> None:
        """Write a validation corpus to the validation texts."""
        bad = BadLines(corpus.name, self._outputs.listing)
        for part in parts:
            self._add_part(part, bad)
        self._check_corpus(bad)
        self.valid = self.valid.replace(name=corpus.name, bad=dict(bad.counts))

    def _add_part(self, part: Part, bad: BadLines) -> None:
        valid = part.values["valid"]
        texts = [{"source": source, "target": target} for source, target, _ in valid]
        for text, (*_, alignment) in zip(texts, valid, strict=True):
            if alignment is not None:
                text["alignment"] = alignment
        self._outputs.valid_texts.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self.valid = self.valid.replace(pairs=self.valid.pairs + len(valid))
        add_faults(bad, part)

    def _check_corpus(self, bad: BadLines) -> None:
        bad.check(self._settings.max_bad_ratio, self._outputs.folder.bad_lines)


def add_faults(bad: BadLines, part: Part) -> None:
    """Add the rows of a part. Rows of a part count from 0, lines of a corpus from 1."""
    faults = [(row, fault) for row, fault in part.values["faults"] if fault != DOCUMENT_END]
    bad.add(part.values["rows"], {bad.lines + row + 1: fault for row, fault in faults})


def count_id_bytes(tokenizers: tuple[Tokenizer, Tokenizer]) -> int:
    return 2 if max(each.vocab_size for each in tokenizers) <= 2**16 else 4


def _format_links(links: frozenset[Link] | None) -> str | None:
    return None if links is None else " ".join(f"{source}-{target}" for source, target in sorted(links))


def _pack_ragged(name: str, ragged: RaggedArray, dtype: str) -> dict[str, NDArray[np.unsignedinteger]]:
    return {f"{name}_lengths": ragged.lengths.astype("<u4"), name: ragged.ids.astype(dtype)}


def _unpack(part: Part, side: str) -> RaggedArray:
    offsets = np.concatenate([[0], np.cumsum(part.arrays[f"{side}_lengths"], dtype=np.int64)])
    return RaggedArray(part.arrays[side].astype(np.int32), offsets)


def raise_changed(corpus: Corpus, before: int, after: int) -> None:
    raise DataError("corpus_changed_while_reading", corpus=corpus.name, before=before, after=after)
