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
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from attendo.data.config import CorpusConfig
from attendo.data.pharaoh import Link, parse_links
from attendo.data.zstd_files import open_zstd
from attendo.errors import DataError, LocalizedText
from attendo.text.model_card import TURN_SEPARATOR, escape_turn, join_turns
from attendo.text.tokenizer import strip_line_end

_NOT_UTF8 = "not UTF-8"
_SIDE_NOT_UTF8 = ("source not UTF-8", "target not UTF-8")  # if each side has its own file
RawLine = tuple[bytes, ...]
Line = TypeVar("Line", str, bytes, RawLine)
TextPairs = Sequence[tuple[str, str]]
_MAX_ROW_BYTES = 1 << 20  # maximum bytes of a .csv row; an unclosed quote would make it endless
_FIELD_CHECK_LINES = 100  # lines of a .jsonl file searched for a field
_MAX_LISTED_NAMES = 12


class CorpusRow(NamedTuple):
    """One line of a corpus, or one target turn of a conversation. A row with a fault has no text."""

    number: int  # row number, from 1
    source: str
    target: str
    fault: str | None
    links: frozenset[Link] | None = None  # of words, if the corpus has alignments


@runtime_checkable
class Corpus(Protocol):
    """Training or validation text. It is read more than once and must not change."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """How often an epoch uses the corpus."""
        ...

    def rows(self) -> Iterator[CorpusRow]: ...


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

    def rows(self) -> Iterator[CorpusRow]:
        for path in (self.config.source, self.config.target, self.config.file, self.config.alignments):
            if path is not None and path.is_fifo():
                raise DataError("data_file_is_pipe", path=path)
        return read_rows(self.config)


def read_rows(corpus: CorpusConfig) -> Iterator[CorpusRow]:
    """Yield the rows of a corpus. A bad line is a row with a fault. Unreadable files raise `DataError`."""
    numbers, read = count(1), make_line_parser(corpus)
    for line, aligned in _read_aligned_lines(corpus):
        try:
            pairs = [_apply_text_settings(source, target, corpus) for source, target in read(line)]
            if any("\0" in text for pair in pairs for text in pair):
                raise BadLineError("NUL")
            links = None if aligned is None else _parse_alignment(aligned, *pairs[0], has_tag=corpus.tag is not None)
        except UnicodeError:
            yield CorpusRow(next(numbers), "", "", _NOT_UTF8 if len(line) == 1 else _SIDE_NOT_UTF8[_is_utf8(line[0])])
        except BadLineError as error:
            yield CorpusRow(next(numbers), "", "", str(error))
        else:
            for source, target in pairs:
                yield CorpusRow(next(numbers), source, target, None, links)


def _read_aligned_lines(corpus: CorpusConfig) -> Iterator[tuple[RawLine, bytes | None]]:
    """Yield the lines of a corpus with their alignments, None for a corpus without alignments."""
    lines = read_corpus_lines(corpus)
    if corpus.alignments is None:
        yield from ((line, None) for line in lines)
        return
    with open_binary(corpus.alignments) as file:
        paths = (corpus.file or corpus.source or Path(), corpus.alignments)
        aligned = ((line,) for line in read_raw_lines(file, corpus.alignments))
        for line, (links,) in _zip_lines(paths, [lines, aligned]):
            yield line, links


def _parse_alignment(line: bytes, source: str, target: str, has_tag: bool) -> frozenset[Link]:
    """Return the sure links of a line in Pharaoh format. The words of a source are counted without its tag."""
    try:
        links, _ = parse_links(line.decode("utf-8"), "")
    except DataError:
        raise BadLineError("alignment is not a list of links such as 0-0 1-2") from None
    tag = int(has_tag and bool(source.strip()))
    words = len(source.split()) - tag, len(target.split())
    if any(one >= words[0] or other >= words[1] for one, other in links):
        raise BadLineError("alignment with a word beyond the sentence")
    return frozenset((one + tag, other) for one, other in links)


def suggest_encoding_fix(corpus: Corpus, faults: Mapping[str, int]) -> str:
    """Return which file is not UTF-8 and how to convert it, or an empty string."""
    if not isinstance(corpus, FileCorpus):
        return ""
    config = corpus.config
    files = dict(zip((*_SIDE_NOT_UTF8, _NOT_UTF8), (config.source, config.target, config.file), strict=True))
    wrong = [path for fault, path in files.items() if faults.get(fault) and path is not None]
    return "; ".join(f"{path} is not UTF-8; if it is Latin-1: {conversion_command(path, 'LATIN1')}" for path in wrong)


def suggest_fields(corpus: Corpus, faults: Mapping[str, int]) -> str:
    """Return the fields of the first .jsonl line if lines lack the configured ones, or an empty string."""
    if not isinstance(corpus, FileCorpus) or not faults.get("no such field") or corpus.config.format != "jsonl":
        return ""
    try:
        content = _parse_object(next(read_corpus_lines(corpus.config))[0].decode("utf-8"))
    except (BadLineError, UnicodeError, StopIteration):
        return ""
    names = ", ".join(content)
    fields = names if len(names) <= 200 else f"{names[:200]}..."
    return f"its first line has the fields {fields}: name two in source_field and target_field" if fields else ""


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeError:
        return False
    return True


def _apply_text_settings(source: str, target: str, corpus: CorpusConfig) -> tuple[str, str]:
    if corpus.without_spaces:
        source, target = source.replace(" ", ""), target.replace(" ", "")
    # An empty source stays empty: the tag would hide it.
    return f"{corpus.tag} {source}" if corpus.tag and source.strip() else source, target


class BadLineError(Exception):
    """A line that cannot be parsed. The argument is the reason."""


def read_corpus_lines(corpus: CorpusConfig) -> Iterator[RawLine]:
    """Yield lines as bytes. For two text files, yield both lines."""
    if corpus.file is not None:
        lines = _read_file_lines(corpus)
        return islice(lines, 1, None) if corpus.has_header else lines
    assert corpus.source is not None, "CorpusConfig checks it"
    assert corpus.target is not None
    return read_raw_pairs(corpus.source, corpus.target)


def make_line_parser(corpus: CorpusConfig) -> Callable[[RawLine], TextPairs]:
    """Return a function that turns a line into pairs. It raises `BadLineError` or `UnicodeError` for a bad line."""
    if corpus.file is None:
        return _parse_text
    if corpus.turns_field is not None:
        return partial(_parse_conversation, corpus.turns_field, corpus)
    return partial(_parse_fields, _PARSERS[corpus.format], resolve_fields(corpus))


def get_field_names(corpus: CorpusConfig) -> tuple[str, ...]:
    """Return the fields of the source, the target and, if set, the features."""
    usual = ("source", "target") if corpus.format == "jsonl" else ("1", "2")
    given = (corpus.source_field, corpus.target_field)
    sides = [other if name is None else name for name, other in zip(given, usual, strict=True)]
    return (*sides, *(() if corpus.features_field is None else (corpus.features_field,)))


def resolve_fields(corpus: CorpusConfig) -> tuple[str, ...]:
    """Return the configured fields, with column names replaced by numbers. Raise `DataError` for an unknown field.

    Some lines of a .jsonl file may lack a field: they are bad lines. A field that no line has is an error.
    """
    names = get_field_names(corpus)
    if corpus.format == "jsonl":
        _check_fields(corpus, names)
        return names
    if not corpus.has_header:
        return names
    columns = _read_header(corpus)
    for name in names:
        if name not in columns:
            raise DataError("table_column_not_found", path=corpus.file, column=name, columns=_format_names(columns))
    return tuple(str(columns.index(name) + 1) for name in names)


def describe_fields(corpus: CorpusConfig) -> str:
    """Describe the fields of both sides, for messages."""
    if corpus.turns_field is not None:
        return LocalizedText("conversations of field {field}", field=corpus.turns_field)
    source, target, *features = get_field_names(corpus)
    values = {"what": LocalizedText("field" if corpus.format == "jsonl" else "column"), "source": source}
    if features:
        text = "source is {what} {source}, target is {what} {target}, features are {what} {features}"
        return LocalizedText(text, **values, target=target, features=features[0])
    return LocalizedText("source is {what} {source}, target is {what} {target}", **values, target=target)


def collect_symbols(corpus: CorpusConfig) -> list[str]:
    """Return the symbols in its sources: the tag, all features in the file, and the turn separator."""
    found = {} if corpus.tag is None else {corpus.tag: None}
    if corpus.turns_field is not None:
        found[TURN_SEPARATOR] = None
    if corpus.features_field is not None:
        found |= dict.fromkeys(sorted(_collect_features(corpus)))
    return list(found)


def _collect_features(corpus: CorpusConfig) -> set[str]:
    """Return all feature symbols. Bad lines are skipped here and reported elsewhere."""
    found: set[str] = set()
    fields, names = _PARSERS[corpus.format], resolve_fields(corpus)
    for line in read_corpus_lines(corpus):
        try:
            found.update(_feature_symbols(fields(names, line[0].decode("utf-8"))[2]))
        except (BadLineError, UnicodeError):
            continue
    return found


def _read_file_lines(corpus: CorpusConfig) -> Iterator[RawLine]:
    path, empty = corpus.file, True
    assert path is not None
    with open_binary(path) as file:
        lines = read_raw_lines(file, path)
        for line in _join_quoted_lines(lines, path) if corpus.format == "csv" else lines:
            empty = False
            yield (line,)
    if empty:
        raise DataError("file_is_empty", path=path)


def _join_quoted_lines(lines: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Yield the rows of a .csv file: a line break inside quotes belongs to the row."""
    partial_row, first = b"", 0
    for number, line in enumerate(lines, start=1):
        row = partial_row + b"\n" + line if first else line
        if row.count(b'"') % 2 == 0:
            yield row
            partial_row, first = b"", 0
            continue
        partial_row, first = row, first or number
        if len(row) > _MAX_ROW_BYTES:
            break
    if first:
        raise DataError("csv_quote_not_closed", path=path, line=first)


def _read_header(corpus: CorpusConfig) -> list[str]:
    line = next(_read_file_lines(corpus))[0]
    try:
        text = line.decode("utf-8")
        return [name.strip() for name in (_split_csv(text) if corpus.format == "csv" else text.split("\t"))]
    except UnicodeError:
        raise DataError("header_not_utf8", path=corpus.file) from None
    except BadLineError:
        raise DataError("header_not_csv", path=corpus.file) from None


def _check_fields(corpus: CorpusConfig, names: Sequence[str]) -> None:
    """Check that the first lines have each field. The error lists the fields that they have."""
    objects: list[dict[str, Any]] = []
    for (line,) in islice(_read_file_lines(corpus), _FIELD_CHECK_LINES):
        try:
            objects.append(_parse_object(line.decode("utf-8")))
        except (BadLineError, UnicodeError):
            continue
    for name, setting in zip(names, ("source_field", "target_field", "features_field"), strict=False):
        if objects and not any(name in each for each in objects):
            there = dict.fromkeys(key for each in objects for key in each)
            raise DataError(
                "jsonl_field_not_found", path=corpus.file, field=name, fields=_format_names(list(there)), option=setting
            )


def _format_names(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in names[:_MAX_LISTED_NAMES]]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _parse_text(line: RawLine) -> TextPairs:
    return [(line[0].decode("utf-8"), line[1].decode("utf-8"))]


def _parse_fields(read: Callable[[Sequence[str], str], list[str]], names: Sequence[str], line: RawLine) -> TextPairs:
    text = line[0].decode("utf-8")
    if not text.strip():
        return [("", "")]
    source, target, *features = read(names, text)
    # An empty source stays empty: its features would hide it.
    before = "".join(_feature_symbols(features[0])) if features and source.strip() else ""
    return [(before + source, target)]


def parse_tsv(names: Sequence[str], text: str) -> list[str]:
    return _select_columns(names, text.split("\t"))


def _parse_csv(names: Sequence[str], text: str) -> list[str]:
    return [strip_line_end(value) for value in _select_columns(names, _split_csv(text))]


def _split_csv(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error:
        raise BadLineError("not CSV") from None


def _select_columns(names: Sequence[str], columns: list[str]) -> list[str]:
    indices = [int(name) - 1 for name in names]
    if max(indices) >= len(columns):
        raise BadLineError("no such column")
    return [columns[index] for index in indices]


def parse_jsonl(names: Sequence[str], text: str) -> list[str]:
    content = _parse_object(text)
    if any(name not in content for name in names):
        raise BadLineError("no such field")
    values = [content[name] for name in names]
    if not all(isinstance(value, str) for value in values):
        raise BadLineError("field is not text")
    "".join(values).encode("utf-8")  # JSON can encode an unpaired surrogate, which is invalid in UTF-8
    return [strip_line_end(value) for value in values]


def _feature_symbols(features: str) -> list[str]:
    """Return V;PST as <V> and <PST>."""
    names = [name.strip() for name in features.split(";") if name.strip()]
    if any(character.isspace() or character in "<>" for name in names for character in name):
        raise BadLineError("feature with a space or a bracket")
    return [f"<{name}>" for name in names]


def _parse_conversation(field: str, corpus: CorpusConfig, line: RawLine) -> TextPairs:
    """Return every target turn with the preceding turns as its source."""
    text = line[0].decode("utf-8")
    turns = _parse_object(text).get(field) if text.strip() else None
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise BadLineError("no list of turns")
    if corpus.without_spaces:  # first, because removing spaces may create the turn separator
        turns = [turn.replace(" ", "") for turn in turns]
    turns = [escape_turn(strip_line_end(turn)) for turn in turns]
    join_turns(turns).encode("utf-8")
    answers = range(1, len(turns), 2 if corpus.answers == "second" else 1)
    if not answers:
        raise BadLineError("no answer")
    return [(join_turns(turns[max(0, n - corpus.context_turns) : n]), turns[n]) for n in answers]


def _parse_object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise BadLineError("not JSON") from None
    if not isinstance(content, dict):
        raise BadLineError("no such field")
    return content


_PARSERS: dict[str, Callable[[Sequence[str], str], list[str]]] = {
    "tsv": parse_tsv,
    "csv": _parse_csv,
    "jsonl": parse_jsonl,
}


def read_lines(path: Path) -> Iterator[str]:
    with open_binary(path) as file:
        yield from decode_lines(file, path)


def decode_lines(
    file: Iterable[bytes], name: Path | str, errors: Literal["strict", "replace"] = "strict"
) -> Iterator[str]:
    """Yield lines without their line ends. Only a line feed ends a line; other Unicode separators are text."""
    for number, line in enumerate(read_raw_lines(file, name), start=1):
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise not_utf8_error(name, number) from None


def read_raw_pairs(source: Path, target: Path) -> Iterator[RawLine]:
    """Yield the lines of two files in parallel, undecoded. Raise `DataError` if the files differ in length."""
    with ExitStack() as stack:
        files = [read_raw_lines(stack.enter_context(open_binary(path)), path) for path in (source, target)]
        empty = True
        for pair in _zip_lines((source, target), files):
            empty = False
            yield pair
        if empty:
            raise DataError("file_is_empty", path=source)


def read_parallel_lines(*paths: Path) -> Iterator[tuple[str, ...]]:
    """Yield the lines of several files in parallel. Raise `DataError` if the files differ in length."""
    return _zip_lines(paths, map(read_lines, paths))


def _zip_lines(paths: Sequence[Path], files: Iterable[Iterator[Line]]) -> Iterator[tuple[Line, ...]]:
    for number, lines in enumerate(zip_longest(*files), start=1):
        if None in lines:
            short = paths[lines.index(None)]
            long = next(path for path, line in zip(paths, lines, strict=True) if line is not None)
            raise DataError(
                "file_line_counts_differ", short=short, short_lines=number - 1, long=long, long_lines=number
            )
        yield lines


def read_raw_lines(file: Iterable[bytes], name: Path | str) -> Iterator[bytes]:
    """Yield lines without their ends. A UTF-8 byte order mark is removed; one of UTF-16 or UTF-32 is an error."""
    lines = iter(file)
    try:
        for line in lines:
            if isinstance(name, Path):
                reject_utf16(line, name)
            yield line.removeprefix(codecs.BOM_UTF8).rstrip(b"\n").removesuffix(b"\r")
            break
        for line in lines:
            yield line.rstrip(b"\n").removesuffix(b"\r")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError("file_read_failed", path=name, reason=error) from None


def open_binary(path: Path) -> BufferedIOBase:
    """Open a file for reading. A .gz, .xz or .zst file is decompressed."""
    opener = {".gz": gzip.open, ".xz": lzma.open, ".zst": open_zstd}.get(path.suffix, open)
    try:
        return opener(path, "rb")  # type: ignore[operator]
    except OSError as error:
        raise DataError("file_open_failed", path=path, reason=error.strerror or error) from None


def reject_utf16(first: bytes, path: Path) -> None:
    """Raise `DataError` if `first`, the start of a file, has a UTF-16 or UTF-32 byte order mark."""
    marks = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"}  # first: the UTF-16-LE mark is a prefix
    marks |= {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    for mark, encoding in marks.items():
        if first.startswith(mark):
            raise DataError(
                "file_is_utf16_or_utf32", path=path, encoding=encoding, command=conversion_command(path, encoding)
            )


def conversion_command(path: Path, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    pack = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}.get(path.suffix)
    plain = path.with_suffix("") if pack else path
    new = shlex.quote(f"{plain.with_suffix('')}.utf8{plain.suffix}{path.suffix if pack else ''}")
    given = shlex.quote(str(path))
    if pack is None:
        return f"iconv -f {encoding} -t UTF-8 {given} > {new}"
    return f"{pack} -dc {given} | iconv -f {encoding} -t UTF-8 | {pack} > {new}"


def not_utf8_error(name: Path | str, line: int) -> DataError:
    """Return the error for a line that is not UTF-8. It suggests Latin-1, the usual cause."""
    command = f"; if it is Latin-1: {conversion_command(name, 'LATIN1')}" if isinstance(name, Path) else ""
    return DataError("line_not_utf8", path=name, line=line, advice=command)
