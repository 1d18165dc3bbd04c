"""Corpora as rows of text: a pair of text files, a .tsv or a .jsonl file; what is wrong with a row travels with it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from attendo.data.config import CorpusConfig
from attendo.data.parallel import open_binary, raw_lines, raw_pairs
from attendo.errors import DataError


class Row(NamedTuple):
    """One line of a corpus. A row with a fault has no text."""

    number: int  # of the line, from 1
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
        return rows(self.config)


class _BadLineError(Exception):
    """The one argument is the reason."""


def rows(corpus: CorpusConfig) -> Iterator[Row]:
    """The lines of a corpus. A bad one is told in its row; files that cannot be read at all are a `DataError`."""
    lines, sides = _opened(corpus)
    for number, line in enumerate(lines, start=1):
        try:
            source, target = sides(line)
            if "\0" in source or "\0" in target:
                raise _BadLineError("NUL")
        except UnicodeError:
            yield Row(number, "", "", "not UTF-8")
        except _BadLineError as error:
            yield Row(number, "", "", str(error))
        else:
            # A source without text stays without: the tag alone would hide it.
            yield Row(number, f"{corpus.tag} {source}" if corpus.tag and source.strip() else source, target, None)


def _opened(corpus: CorpusConfig) -> tuple[Iterator[tuple[bytes, ...]], Callable[[tuple[bytes, ...]], tuple[str, str]]]:
    """The lines of the corpus as bytes, and what makes the two sides of one."""
    if corpus.file is None:
        assert corpus.source is not None, "CorpusConfig has seen to it"
        assert corpus.target is not None
        return raw_pairs(corpus.source, corpus.target), _text
    if corpus.form == "tsv":
        return _alone(corpus.file), partial(_tsv, int(corpus.source_field or 1), int(corpus.target_field or 2))
    assert corpus.source_field is not None, "CorpusConfig has seen to it"
    assert corpus.target_field is not None
    return _alone(corpus.file), partial(_jsonl, corpus.source_field, corpus.target_field)


def _alone(path: Path) -> Iterator[tuple[bytes]]:
    empty = True
    with open_binary(path) as file:
        for line in raw_lines(file, path):
            empty = False
            yield (line,)
    if empty:
        raise DataError(f"{path} is empty: there is nothing to read")


def _text(line: tuple[bytes, ...]) -> tuple[str, str]:
    return line[0].decode("utf-8"), line[1].decode("utf-8")


def _tsv(first: int, second: int, line: tuple[bytes, ...]) -> tuple[str, str]:
    text = line[0].decode("utf-8")
    columns = text.split("\t")
    if text and max(first, second) > len(columns):
        raise _BadLineError("no such column")
    return (columns[first - 1], columns[second - 1]) if text else ("", "")


def _jsonl(first: str, second: str, line: tuple[bytes, ...]) -> tuple[str, str]:
    text = line[0].decode("utf-8")
    if not text.strip():
        return "", ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise _BadLineError("not JSON") from None
    if not isinstance(content, dict) or first not in content or second not in content:
        raise _BadLineError("no such field")
    source, target = content[first], content[second]
    if not isinstance(source, str) or not isinstance(target, str):
        raise _BadLineError("field is not text")
    (source + target).encode("utf-8")  # JSON can spell half of a surrogate pair, which no UTF-8 holds
    return source, target
