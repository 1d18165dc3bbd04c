"""The forms a corpus may have, two text files, .tsv, .csv or .jsonl, and how a line of each becomes pairs of text."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from attendo.data.config import CorpusConfig
from attendo.data.line_breaks import as_line
from attendo.data.parallel import open_binary, raw_lines, raw_pairs
from attendo.errors import DataError
from attendo.text.turns import TURN, as_turn, join_turns

Line = tuple[bytes, ...]
Pairs = Sequence[tuple[str, str]]

_LONGEST_ROW = 1 << 20  # bytes of a row of a .csv file; a quotation mark that nobody closed would make it endless
_LOOKED_AT = 100  # lines of a .jsonl file that are searched for a field
_NAMES_SHOWN = 12


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
