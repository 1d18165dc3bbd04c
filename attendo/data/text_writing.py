"""Running text as windows of ids in shards: read to know how long it is, and once more to write it down."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attendo.data.config import DataConfig
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.line_breaks import KEEPING, LINE, LineBreaks
from attendo.data.running import END, RunningText
from attendo.data.sequences import Sequences
from attendo.data.shards import ShardRecord, ShardSet, ShardWriter
from attendo.data.survey import Sample
from attendo.data.windows import Ids, overlapping, side_by_side
from attendo.errors import DataError, UsageError
from attendo.text import EOS, Tokenizer

SHOWN = 200  # validation windows whose text is kept, to show what becomes of their beginnings
BEGINNING = 32  # tokens of such a beginning, or half of a short window

_BREAKS = re.compile(f"\n|{END}")
_CUT_ANYWHERE = (KEEPING, "bytes")  # kinds whose tokens do not depend on where a text begins


@dataclass(frozen=True)
class Part:
    """A stretch of a text, in characters."""

    text: RunningText
    first: int
    last: int

    def pieces(self, anywhere: bool) -> Iterator[str]:
        """Its text, block by block. Unless a text may be cut anywhere, a block is of whole lines."""
        place, read = 0, 0
        for block in self.text.blocks():
            if not (block.whole or anywhere):
                raise DataError("line_too_long_to_tokenize", path=block.path, line=block.line)
            text = block.text[max(0, self.first - place) : max(0, self.last - place)]
            place, read = place + len(block.text), read + len(text)
            if text:
                yield text
            if place >= self.last:
                break
        if read < self.last - self.first:
            raise DataError("text_shrank_while_reading", name=self.text.name)


@dataclass(frozen=True)
class TextSurvey:
    """What there is to learn from and to validate with."""

    learnt: Part
    validated: Part
    lines: int  # of all files


def survey_text(settings: DataConfig, kind: str) -> TextSurvey:
    """Reads all of it. The end of the text is kept back for validation, unless that has a file of its own."""
    text, valid = running_texts(settings)
    extent = text.extent()
    if valid is not None:
        its_extent = valid.extent()
        parts = Part(text, 0, extent.characters), Part(valid, 0, its_extent.characters)
        return TextSurvey(*parts, extent.lines + its_extent.lines)
    border = int(extent.characters * (1 - settings.valid_share))
    if kind not in _CUT_ANYWHERE:
        border = _next_line(text, border)
    return TextSurvey(Part(text, 0, border), Part(text, border, extent.characters), extent.lines)


def running_texts(settings: DataConfig) -> tuple[RunningText, RunningText | None]:
    """To learn from, and to validate with where that has files of its own."""
    learnt, validated = settings.text_files
    field = {} if settings.text_field is None else {"field": settings.text_field}
    return RunningText(learnt, **field), RunningText(validated, **field) if validated else None


def sampled_lines(part: Part, kind: str, seed: int) -> list[str]:
    """Lines to learn the vocabulary from, spread evenly over the text."""
    sample = Sample(seed)
    for text in (text for piece in part.pieces(anywhere=True) for text in piece.split(END)):
        sample.offer([("", line) for line in (text.splitlines(keepends=True) if kind == KEEPING else text.split("\n"))])
    return [line for _, line in sample.pairs()]


class TextWriting:
    """Both parts become shards; the generator yields the lines read so far."""

    def __init__(self, settings: DataConfig, tokenizer: Tokenizer, folder: Path) -> None:
        if tokenizer.kind != KEEPING and LINE not in tokenizer.symbols:
            raise UsageError("tokenizer_lacks_line_symbol", symbol=LINE)
        self.corpora: list[CorpusRecord] = []
        self.valid = ValidRecord(name=None, pairs=0, bad={})
        self._settings, self._tokenizer, self._folder = settings, LineBreaks(tokenizer), folder
        self._lines, self._tokens = 0, 0

    def write(self, survey: TextSurvey, valid_texts: Path) -> Generator[int, None, None]:
        settings, window = self._settings, self._settings.window
        train = yield from self._shards("train-00", survey.learnt, lambda ids: overlapping(ids, window, settings.step))
        name, lines = survey.learnt.text.name, self._lines
        if self._tokens < 2 * window:
            raise _too_short(name, self._tokens, "learn from", f"two windows of {window}", "bring more text")
        self._tokens = 0
        valid = yield from self._shards("valid-00", survey.validated, lambda ids: side_by_side(ids, window))
        valid_name = survey.validated.text.name
        if self._tokens < window:
            way_out = "raise data.valid_share, name data.valid_text"
            raise _too_short(valid_name, self._tokens, "validate with", f"a window of {window}", way_out)
        self.corpora.append(_record(name, lines, train))
        self.valid = self.valid.replace(
            name=None if valid_name == name else valid_name, pairs=sum(each.pairs for each in valid), shards=valid
        )
        self._show(valid, valid_texts)

    def _shards(
        self, name: str, part: Part, cut: Callable[[Iterable[Ids]], Iterator[Sequences]]
    ) -> Generator[int, None, tuple[ShardRecord, ...]]:
        shards = ShardWriter(self._folder, name, 2 if self._tokenizer.vocab_size <= 2**16 else 4)
        for windows in cut(self._ids(part)):
            shards.add(Sequences.of([()] * len(windows)), windows)
            yield self._lines
        return shards.close()

    def _ids(self, part: Part) -> Iterator[Ids]:
        for text in part.pieces(self._tokenizer.kind in _CUT_ANYWHERE):
            first, *others = text.split(END)
            numbers = self._tokenizer.encode(first)
            for document in others:  # the one before it has ended
                numbers += [EOS, *(self._tokenizer.encode(document) if document else ())]
            ids = np.array(numbers, np.int32)
            self._lines, self._tokens = self._lines + text.count("\n"), self._tokens + len(ids)
            yield ids

    def _show(self, records: tuple[ShardRecord, ...], place: Path) -> None:
        """Some windows as text: a beginning, and how it goes on."""
        sizes = (self._tokenizer.vocab_size,) * 2
        windows = ShardSet(self._folder, records, sizes)
        numbers = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), SHOWN)).round().astype(int))
        with place.open("w", encoding="utf-8") as file:
            for number in numbers.tolist():
                ids = list(windows.example(number).target)
                count = min(BEGINNING, len(ids) // 2)
                beginning, whole = self._tokenizer.decode(ids[:count]), self._tokenizer.decode(ids)
                rest = whole[len(beginning) :] if whole.startswith(beginning) else self._tokenizer.decode(ids[count:])
                file.write(json.dumps({"source": beginning, "target": rest}, ensure_ascii=False) + "\n")


def _record(name: str, lines: int, shards: tuple[ShardRecord, ...]) -> CorpusRecord:
    return CorpusRecord(
        name=name,
        weight=1.0,
        lines=lines,
        pairs=sum(record.pairs for record in shards),
        source_tokens=0,
        target_tokens=sum(record.target_tokens for record in shards),
        bad={},
        shards=shards,
    )


def _next_line(text: RunningText, place: int) -> int:
    """The first line break, or the first place behind a document, from a place on."""
    before = 0
    for block in text.blocks():
        for found in _BREAKS.finditer(block.text, max(0, place - before)):
            border = before + (found.start() if found[0] == "\n" else found.end())
            if border > 0:
                return border
        before += len(block.text)
    raise DataError("validation_part_without_line_break", name=text.name)


def _too_short(name: str, tokens: int, what: str, least: str, way_out: str) -> DataError:
    return DataError("running_text_too_short", name=name, tokens=tokens, purpose=what, minimum=least, remedy=way_out)
