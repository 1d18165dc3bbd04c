"""Corpora as rows of text: two text files, a .tsv, .csv or .jsonl file; what is wrong with a row travels with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

from attendo.data.config import CorpusConfig
from attendo.data.forms import BadLineError, fields_of_first_line, lines_of, reader_of
from attendo.data.parallel import conversion
from attendo.errors import DataError

_NOT_UTF8 = "not UTF-8"
_NOT_UTF8_IN = ("source not UTF-8", "target not UTF-8")  # where each side has a file of its own


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
