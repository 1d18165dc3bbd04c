"""Reads corpora from parallel text, .tsv, .csv and .jsonl files, plain or compressed."""

import codecs
import csv
import gzip
import json
import lzma
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import BufferedIOBase
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from attendo.data.config import CorpusConfig
from attendo.errors import DataError
from attendo.text.model_card import TURN, as_turn, join_turns
from attendo.text.newlines import as_line

_NOT_UTF8 = "not UTF-8"
_NOT_UTF8_IN = ("source not UTF-8", "target not UTF-8")  # where each side has a file of its own
Line = tuple[bytes, ...]
Pairs = Sequence[tuple[str, str]]
_LONGEST_ROW = 1 << 20  # bytes of a row of a .csv file; a quotation mark that nobody closed would make it endless
_LOOKED_AT = 100  # lines of a .jsonl file that are searched for a field
_NAMES_SHOWN = 12


class Row(NamedTuple):
    """One line of a corpus, or one answer of a conversation in it. A row with a fault has no text."""

    number: int  # of the row, from 1
    source: str
    target: str
    fault: str | None


@runtime_checkable
class Corpus(Protocol):
    """Text to learn from. It is read more than once, and must be the same each time."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """How often an epoch goes through the corpus."""
        ...

    def rows(self) -> Iterator[Row]: ...


@dataclass(frozen=True)
class FileCorpus:
    """A corpus in files."""

    config: CorpusConfig

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def weight(self) -> float:
        return self.config.weight

    def rows(self) -> Iterator[Row]:
        for path in (self.config.source, self.config.target, self.config.file):
            if path is not None and path.is_fifo():
                raise DataError("data_file_is_pipe", path=path)
        return rows(self.config)


def rows(corpus: CorpusConfig) -> Iterator[Row]:
    """The rows of a corpus. A bad one is told in its row; files that cannot be read at all are a `DataError`."""
    numbers, read = count(1), reader_of(corpus)
    for line in lines_of(corpus):
        try:
            pairs = [_dressed(source, target, corpus) for source, target in read(line)]
            if any("\0" in text for pair in pairs for text in pair):
                raise BadLineError("NUL")
        except UnicodeError:
            yield Row(next(numbers), "", "", _NOT_UTF8 if len(line) == 1 else _NOT_UTF8_IN[_is_utf8(line[0])])
        except BadLineError as error:
            yield Row(next(numbers), "", "", str(error))
        else:
            for source, target in pairs:
                yield Row(next(numbers), source, target, None)


def encoding_advice(corpus: Corpus, faults: Mapping[str, int]) -> str:
    """Which file is not UTF-8 and how to convert it; nothing where all of them are."""
    if not isinstance(corpus, FileCorpus):
        return ""
    config = corpus.config
    files = dict(zip((*_NOT_UTF8_IN, _NOT_UTF8), (config.source, config.target, config.file), strict=True))
    wrong = [path for fault, path in files.items() if faults.get(fault) and path is not None]
    return "; ".join(f"{path} is not UTF-8; if it is Latin-1: {conversion(path, 'LATIN1')}" for path in wrong)


def field_advice(corpus: Corpus, faults: Mapping[str, int]) -> str:
    """Which fields the first line of a .jsonl file has, where lines lack those that were asked for."""
    if not isinstance(corpus, FileCorpus) or not faults.get("no such field"):
        return ""
    fields = fields_of_first_line(corpus.config)
    return f"its first line has the fields {fields}: name two in source_field and target_field" if fields else ""


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeError:
        return False
    return True


def _dressed(source: str, target: str, corpus: CorpusConfig) -> tuple[str, str]:
    if corpus.without_spaces:
        source, target = source.replace(" ", ""), target.replace(" ", "")
    # A source without text stays without: the tag alone would hide it.
    return f"{corpus.tag} {source}" if corpus.tag and source.strip() else source, target


class BadLineError(Exception):
    """The one argument is the reason."""


def lines_of(corpus: CorpusConfig) -> Iterator[Line]:
    """As bytes; of two text files, both lines."""
    if corpus.file is not None:
        lines = _rows(corpus)
        return islice(lines, 1, None) if corpus.has_header else lines
    assert corpus.source is not None, "CorpusConfig has seen to it"
    assert corpus.target is not None
    return raw_pairs(corpus.source, corpus.target)


def reader_of(corpus: CorpusConfig) -> Callable[[Line], Pairs]:
    """What makes pairs of a line; one that cannot be read is a `BadLineError` or a `UnicodeError`."""
    if corpus.file is None:
        return _text
    if corpus.turns_field is not None:
        return partial(_conversation, corpus.turns_field, corpus)
    return partial(_fields, _READERS[corpus.form], places_of_fields(corpus))


def field_names(corpus: CorpusConfig) -> tuple[str, ...]:
    """Of the source, the target and, where there are any, the features."""
    usual = ("source", "target") if corpus.form == "jsonl" else ("1", "2")
    given = (corpus.source_field, corpus.target_field)
    sides = [other if name is None else name for name, other in zip(given, usual, strict=True)]
    return (*sides, *(() if corpus.features_field is None else (corpus.features_field,)))


def places_of_fields(corpus: CorpusConfig) -> tuple[str, ...]:
    """The same, with columns that are named in the first line by their numbers. A field that is not there is an error.

    Some lines of a .jsonl file may lack a field: they are bad lines. A field that no line has is a mistake.
    """
    names = field_names(corpus)
    if corpus.form == "jsonl":
        _check_fields(corpus, names)
        return names
    if not corpus.has_header:
        return names
    columns = _header(corpus)
    for name in names:
        if name not in columns:
            raise DataError("table_column_not_found", path=corpus.file, column=name, columns=_list(columns))
    return tuple(str(columns.index(name) + 1) for name in names)


def describe_fields(corpus: CorpusConfig) -> str:
    """Where both sides of a file are found, in words."""
    what = "field" if corpus.form == "jsonl" else "column"
    if corpus.turns_field is not None:
        return f"conversations of field {corpus.turns_field}"
    source, target, *features = field_names(corpus)
    more = f", features are {what} {features[0]}" if features else ""
    return f"source is {what} {source}, target is {what} {target}{more}"


def symbols_of(corpus: CorpusConfig) -> list[str]:
    """The symbols that its sources hold: its tag, all features in its file, and what stands between turns."""
    found = {} if corpus.tag is None else {corpus.tag: None}
    if corpus.turns_field is not None:
        found[TURN] = None
    if corpus.features_field is not None:
        found |= dict.fromkeys(sorted(_features_in(corpus)))
    return list(found)


def _features_in(corpus: CorpusConfig) -> set[str]:
    """Bad lines are told of elsewhere."""
    found: set[str] = set()
    fields, names = _READERS[corpus.form], places_of_fields(corpus)
    for line in lines_of(corpus):
        try:
            found.update(_symbols(fields(names, line[0].decode("utf-8"))[2]))
        except (BadLineError, UnicodeError):
            continue
    return found


def _rows(corpus: CorpusConfig) -> Iterator[Line]:
    path, empty = corpus.file, True
    assert path is not None
    with open_binary(path) as file:
        lines = raw_lines(file, path)
        for line in _joined_by_quotes(lines, path) if corpus.form == "csv" else lines:
            empty = False
            yield (line,)
    if empty:
        raise DataError("file_is_empty", path=path)


def _joined_by_quotes(lines: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Rows of a .csv file: a line break between quotation marks is part of a row."""
    begun, first = b"", 0
    for number, line in enumerate(lines, start=1):
        row = begun + b"\n" + line if first else line
        if row.count(b'"') % 2 == 0:
            yield row
            begun, first = b"", 0
            continue
        begun, first = row, first or number
        if len(row) > _LONGEST_ROW:
            break
    if first:
        raise DataError("csv_quote_not_closed", path=path, line=first)


def _header(corpus: CorpusConfig) -> list[str]:
    line = next(_rows(corpus))[0]
    try:
        text = line.decode("utf-8")
    except UnicodeError:
        raise DataError("header_not_utf8", path=corpus.file) from None
    return [name.strip() for name in (_csv_columns(text) if corpus.form == "csv" else text.split("\t"))]


def _check_fields(corpus: CorpusConfig, names: Sequence[str]) -> None:
    """Some of the first lines have each field, or the fields that they do have are named."""
    objects: list[dict[str, Any]] = []
    for (line,) in islice(_rows(corpus), _LOOKED_AT):
        try:
            objects.append(_object(line.decode("utf-8")))
        except (BadLineError, UnicodeError):
            continue
    for name, setting in zip(names, ("source_field", "target_field", "features_field"), strict=False):
        if objects and not any(name in each for each in objects):
            there = dict.fromkeys(key for each in objects for key in each)
            raise DataError(
                "jsonl_field_not_found", path=corpus.file, field=name, fields=_list(list(there)), option=setting
            )


def _list(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in names[:_NAMES_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _text(line: Line) -> Pairs:
    return [(line[0].decode("utf-8"), line[1].decode("utf-8"))]


def _fields(read: Callable[[Sequence[str], str], list[str]], names: Sequence[str], line: Line) -> Pairs:
    text = line[0].decode("utf-8")
    if not text.strip():
        return [("", "")]
    source, target, *features = read(names, text)
    # A source without text stays without: its features alone would hide it.
    before = "".join(_symbols(features[0])) if features and source.strip() else ""
    return [(before + source, target)]


def _tsv(names: Sequence[str], text: str) -> list[str]:
    return _columns(names, text.split("\t"))


def _csv(names: Sequence[str], text: str) -> list[str]:
    return [as_line(value) for value in _columns(names, _csv_columns(text))]


def _csv_columns(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error:
        raise BadLineError("not CSV") from None


def _columns(names: Sequence[str], columns: list[str]) -> list[str]:
    places = [int(name) - 1 for name in names]
    if max(places) >= len(columns):
        raise BadLineError("no such column")
    return [columns[place] for place in places]


def _jsonl(names: Sequence[str], text: str) -> list[str]:
    content = _object(text)
    if any(name not in content for name in names):
        raise BadLineError("no such field")
    values = [content[name] for name in names]
    if not all(isinstance(value, str) for value in values):
        raise BadLineError("field is not text")
    "".join(values).encode("utf-8")  # JSON can spell half of a surrogate pair, which no UTF-8 holds
    return [as_line(value) for value in values]


def _symbols(features: str) -> list[str]:
    """V;PST as <V> and <PST>."""
    names = [name.strip() for name in features.split(";") if name.strip()]
    if any(character.isspace() or character in "<>" for name in names for character in name):
        raise BadLineError("feature with a space or a bracket")
    return [f"<{name}>" for name in names]


def _conversation(field: str, corpus: CorpusConfig, line: Line) -> Pairs:
    """Every answer with the turns before it."""
    text = line[0].decode("utf-8")
    turns = _object(text).get(field) if text.strip() else None
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise BadLineError("no list of turns")
    if corpus.without_spaces:  # before what is left can be the symbol between turns
        turns = [turn.replace(" ", "") for turn in turns]
    turns = [as_turn(as_line(turn)) for turn in turns]
    join_turns(turns).encode("utf-8")
    answers = range(1, len(turns), 2 if corpus.answers == "second" else 1)
    if not answers:
        raise BadLineError("no answer")
    return [(join_turns(turns[max(0, n - corpus.context_turns) : n]), turns[n]) for n in answers]


def fields_of_first_line(corpus: CorpusConfig) -> str:
    """Of a .jsonl file, as a list in words, cut to a readable length; nothing where there are none."""
    if corpus.form != "jsonl":
        return ""
    try:
        content = _object(next(lines_of(corpus))[0].decode("utf-8"))
    except (BadLineError, UnicodeError, StopIteration):
        return ""
    names = ", ".join(content)
    return names if len(names) <= 200 else f"{names[:200]}..."


def _object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise BadLineError("not JSON") from None
    if not isinstance(content, dict):
        raise BadLineError("no such field")
    return content


_READERS: dict[str, Callable[[Sequence[str], str], list[str]]] = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl}


def read_lines(path: Path) -> Iterator[str]:
    with open_binary(path) as file:
        yield from numbered_lines(file, path)


def numbered_lines(file: Iterable[bytes], name: Path | str) -> Iterator[str]:
    """Text without its line end. Lines end in a line feed alone; other Unicode separators are part of the text."""
    for number, line in enumerate(raw_lines(file, name), start=1):
        yield _decoded(line, name, number)


def raw_pairs(source: Path, target: Path) -> Iterator[tuple[bytes, bytes]]:
    """The lines of two files side by side, before anyone has asked whether they are text.

    Files of different length are an error, never aligned by guess.
    """
    with ExitStack() as stack:
        left, right = (raw_lines(stack.enter_context(open_binary(path)), path) for path in (source, target))
        number = 0
        for number, (first, second) in enumerate(zip_longest(left, right), start=1):
            if first is None or second is None:
                short, long = (source, target) if first is None else (target, source)
                raise DataError(
                    "file_line_counts_differ", short=short, short_lines=number - 1, long=long, long_lines=number
                )
            yield first, second
        if number == 0:
            raise DataError("file_is_empty", path=source)


def raw_lines(file: Iterable[bytes], name: Path | str) -> Iterator[bytes]:
    """Lines without their end. A byte order mark at the very start is no text; that of UTF-16 is an error."""
    lines = iter(file)
    try:
        for line in lines:
            if isinstance(name, Path):
                refuse_utf16(line, name)
            yield line.removeprefix(codecs.BOM_UTF8).rstrip(b"\n").removesuffix(b"\r")
            break
        for line in lines:
            yield line.rstrip(b"\n").removesuffix(b"\r")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError("file_read_failed", path=name, reason=error) from None


def open_binary(path: Path) -> BufferedIOBase:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        return opener(path, "rb")  # type: ignore[operator]
    except OSError as error:
        raise DataError("file_open_failed", path=path, reason=error.strerror or error) from None


def refuse_utf16(first: bytes, path: Path) -> None:
    """`first` is what a file begins with."""
    marks = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"}  # before those that they begin with
    marks |= {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    for mark, encoding in marks.items():
        if first.startswith(mark):
            raise DataError("file_is_utf16_or_utf32", path=path, encoding=encoding, command=conversion(path, encoding))


def conversion(path: Path, encoding: str) -> str:
    """The command that writes a file anew as UTF-8."""
    pack = {".gz": "gzip", ".xz": "xz"}.get(path.suffix)
    plain = path.with_suffix("") if pack else path
    new = shlex.quote(f"{plain.with_suffix('')}.utf8{plain.suffix}{path.suffix if pack else ''}")
    given = shlex.quote(str(path))
    if pack is None:
        return f"iconv -f {encoding} -t UTF-8 {given} > {new}"
    return f"{pack} -dc {given} | iconv -f {encoding} -t UTF-8 | {pack} > {new}"


def _decoded(line: bytes, name: Path | str, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise not_utf8(name, number) from None


def not_utf8(name: Path | str, line: int) -> DataError:
    """Latin-1 is what such text usually is."""
    command = f"; if it is Latin-1: {conversion(name, 'LATIN1')}" if isinstance(name, Path) else ""
    return DataError("line_not_utf8", path=name, line=line, advice=command)
