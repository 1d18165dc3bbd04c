"""The forms a corpus may have, two text files, .tsv or .jsonl, and how a line of each becomes pairs of text."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attendo.data.config import CorpusConfig
from attendo.data.line_breaks import as_line
from attendo.data.parallel import open_binary, raw_lines, raw_pairs
from attendo.errors import DataError
from attendo.text.turns import TURN, as_turn, join_turns

Line = tuple[bytes, ...]
Pairs = Sequence[tuple[str, str]]


class BadLineError(Exception):
    """The one argument is the reason."""


def lines_of(corpus: CorpusConfig) -> Iterator[Line]:
    """As bytes; of two text files, both lines."""
    if corpus.file is not None:
        return _alone(corpus.file)
    assert corpus.source is not None, "CorpusConfig has seen to it"
    assert corpus.target is not None
    return raw_pairs(corpus.source, corpus.target)


def reader_of(corpus: CorpusConfig) -> Callable[[Line], Pairs]:
    """What makes pairs of a line; one that cannot be read is a `BadLineError` or a `UnicodeError`."""
    if corpus.file is None:
        return _text
    if corpus.turns_field is not None:
        return partial(_conversation, corpus.turns_field, corpus)
    return partial(_fields, _tsv if corpus.form == "tsv" else _jsonl, field_names(corpus))


def field_names(corpus: CorpusConfig) -> tuple[str, ...]:
    """Of the source, the target and, where there are any, the features."""
    sides = [
        first if name is None else name for name, first in ((corpus.source_field, "1"), (corpus.target_field, "2"))
    ]
    return (*sides, *(() if corpus.features_field is None else (corpus.features_field,)))


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
    fields = _tsv if corpus.form == "tsv" else _jsonl
    for line in lines_of(corpus):
        try:
            found.update(_symbols(fields(field_names(corpus), line[0].decode("utf-8"))[2]))
        except (BadLineError, UnicodeError):
            continue
    return found


def _alone(path: Path) -> Iterator[Line]:
    empty = True
    with open_binary(path) as file:
        for line in raw_lines(file, path):
            empty = False
            yield (line,)
    if empty:
        raise DataError(f"{path} is empty: there is nothing to read")


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
    columns = text.split("\t")
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


def _object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise BadLineError("not JSON") from None
    if not isinstance(content, dict):
        raise BadLineError("no such field")
    return content
