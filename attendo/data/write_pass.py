"""Second pass over all text: tokenise, filter by length, write shards."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from io import TextIOBase

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import RaggedArray
from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus
from attendo.data.corpus_windows import WindowLines
from attendo.data.filtering import BadLines, find_length_fault
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.line_filters import DUPLICATE
from attendo.data.preparation_parts import Part
from attendo.data.shards import ShardWriter
from attendo.data.staging import StagingFolder
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
        pairs, valid, cut = list[tuple[list[int], list[int]]](), list[tuple[str, str]](), 0
        for place, row, source, target in zip(places, kept, *ids, strict=True):
            most = self._settings.cut_source
            if most is not None and len(source) > most:
                source, cut = source[:most], cut + 1
            if fault := find_length_fault(len(source), len(target), self._settings):
                faults[numbers[place]] = fault
            elif not is_training or (held_out is not None and held_out[place]):
                valid.append(row[:2])
            else:
                pairs.append((source, target))
        values = {"rows": len(rows), "faults": sorted(faults.items()), "valid": valid, "cut": cut}
        return Part(values, self._pack(pairs))

    def _encode(self, texts: list[str], side: int) -> list[list[int]]:
        return self._tokenizers[side].encode_many(texts)

    def _pack(self, pairs: list[tuple[list[int], list[int]]]) -> dict[str, NDArray[np.unsignedinteger]]:
        packed = {}
        for side, name in enumerate(("source", "target")):
            ragged = RaggedArray.from_lists([pair[side] for pair in pairs])
            packed[f"{name}_lengths"] = ragged.lengths.astype("<u4")
            packed[name] = ragged.ids.astype(self._dtype)
        return packed


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
        bad, cut = BadLines(corpus.name, self._outputs.listing), 0
        shards = ShardWriter(self._outputs.folder.path, f"train-{len(self.corpora):02d}", self._id_bytes)
        for part in parts:
            self._add_part(part, bad)
            cut += part.values["cut"]
            shards.add(_unpack(part, "source"), _unpack(part, "target"))
        self._check_corpus(bad)
        records = shards.close()
        facts = {"name": corpus.name, "weight": corpus.weight, "lines": bad.lines, "bad": dict(bad.counts), "cut": cut}
        self.corpora.append(CorpusRecord.from_shards(records, **facts))

    def write_valid_corpus(self, corpus: Corpus, parts: Iterable[Part]) -> None:
        """Write a validation corpus to the validation texts."""
        bad = BadLines(corpus.name, self._outputs.listing)
        for part in parts:
            self._add_part(part, bad)
        self._check_corpus(bad)
        self.valid = self.valid.replace(name=corpus.name, bad=dict(bad.counts))

    def _add_part(self, part: Part, bad: BadLines) -> None:
        valid = part.values["valid"]
        texts = ({"source": source, "target": target} for source, target in valid)
        self._outputs.valid_texts.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        self.valid = self.valid.replace(pairs=self.valid.pairs + len(valid))
        add_faults(bad, part)

    def _check_corpus(self, bad: BadLines) -> None:
        bad.check(self._settings.max_bad_ratio, self._outputs.folder.bad_lines)


def add_faults(bad: BadLines, part: Part) -> None:
    """Add the rows of a part. Rows of a part count from 0, lines of a corpus from 1."""
    bad.add(part.values["rows"], {bad.lines + row + 1: fault for row, fault in part.values["faults"]})


def count_id_bytes(tokenizers: tuple[Tokenizer, Tokenizer]) -> int:
    return 2 if max(each.vocab_size for each in tokenizers) <= 2**16 else 4


def _unpack(part: Part, side: str) -> RaggedArray:
    offsets = np.concatenate([[0], np.cumsum(part.arrays[f"{side}_lengths"], dtype=np.int64)])
    return RaggedArray(part.arrays[side].astype(np.int32), offsets)


def raise_changed(corpus: Corpus, before: int, after: int) -> None:
    raise DataError("corpus_changed_while_reading", corpus=corpus.name, before=before, after=after)
