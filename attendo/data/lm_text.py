"""Plain text for language models: reading, splitting and fixed-size windows of ids."""

import codecs
import json
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedIOBase
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from attendo.data.batch import Batch, RaggedArray, collate_windows
from attendo.data.config import DataConfig, detect_format
from attendo.data.corpus_files import decode_lines, not_utf8_error, open_binary, reject_utf16
from attendo.data.index import CorpusRecord, ValidRecord
from attendo.data.scan_pass import ReservoirSample
from attendo.data.shards import ShardRecord, ShardSet, ShardWriter
from attendo.errors import DataError, MessagePart, UsageError
from attendo.text import EOS, Tokenizer
from attendo.text.newlines import NEWLINE_KIND, NEWLINE_SYMBOL, NewlineTokenizer

BLOCK_CHARACTERS = 1 << 18
DOCUMENT_END = "\0"  # written after each of several documents: text cannot contain it
Ids = NDArray[np.int32]
MAX_VALID_EXCERPTS = 200  # validation windows stored as text, to show continuations of their prompts
MAX_PROMPT_TOKENS = 32  # tokens of such a prompt, or half of a short window
_LINE_OR_DOCUMENT_END = re.compile(f"\n|{DOCUMENT_END}")
_SPLITTABLE_KINDS = (NEWLINE_KIND, "bytes")  # tokenizers whose tokens do not depend on where a text starts


@dataclass(frozen=True)
class TextBlock:
    """A block of consecutive text."""

    text: str
    line: int  # number of its first line, from 1
    starts_at_line: bool  # it starts with the text, or with the break before a line
    path: Path


@dataclass(frozen=True)
class TextSize:
    """Size of a text."""

    characters: int
    lines: int


@dataclass(frozen=True)
class TextFile:
    """Text in plain, .gz or .xz files. They are read more than once and must not change.

    Each line of a .jsonl file is a document, in one of its fields. Any other file is one document. `DOCUMENT_END`
    follows each of several documents. A single text file does not contain it.
    """

    paths: tuple[Path, ...]
    field: str = "text"

    @property
    def name(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    def read_blocks(self) -> Iterator[TextBlock]:
        """Yield the text in blocks, split before line breaks. A line longer than a block is split too.

        Raise `DataError` for NUL or text that is not UTF-8: skipping it would join unrelated text.
        """
        for path in self.paths:
            if detect_format(path) == "jsonl":
                for number, text in self._read_documents(path):
                    yield from _split_blocks((text, DOCUMENT_END), path, number)
            else:
                yield from _split_blocks(
                    chain(_decode_file(path), (DOCUMENT_END,) if len(self.paths) > 1 else ()), path
                )

    def measure(self) -> TextSize:
        """Read all text and return its size."""
        characters, breaks, empty = 0, 0, True
        for block in self.read_blocks():
            characters, breaks = characters + len(block.text), breaks + block.text.count("\n")
            empty = empty and block.text == DOCUMENT_END
        if empty:
            raise DataError("file_is_empty", path=self.name)
        return TextSize(characters, breaks + 1)

    def _read_documents(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield the texts of a .jsonl file with their line numbers. Blank lines are skipped."""
        with open_binary(path) as file:
            for number, line in enumerate(decode_lines(file, path), start=1):
                if line.strip():
                    yield number, self._parse_document(line, MessagePart("line_of_file", path=path, line=number))

    def _parse_document(self, line: str, location: MessagePart) -> str:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError("jsonl_line_not_json", location=location) from None
        text = content.get(self.field) if isinstance(content, dict) else None
        if not isinstance(text, str):
            there = ", ".join(list(content)[:12]) if isinstance(content, dict) else "no fields"
            raise DataError("jsonl_text_field_missing", location=location, field=self.field, fields=there[:200])
        try:
            text.encode()
        except UnicodeError:
            raise DataError("unpaired_surrogate_in_line", location=location) from None
        if DOCUMENT_END in text:
            raise DataError("jsonl_text_contains_nul", location=location)
        return text.replace("\r\n", "\n")


def _split_blocks(texts: Iterable[str], path: Path, line: int = 1) -> Iterator[TextBlock]:
    rest, starts_at_line = "", True
    for text in chain(texts, ("",)):
        rest += text
        while rest and (len(rest) > BLOCK_CHARACTERS or not text):
            end = len(rest) if len(rest) <= BLOCK_CHARACTERS else rest.rfind("\n", 1, BLOCK_CHARACTERS + 1)
            end = end if end > 0 else BLOCK_CHARACTERS
            yield TextBlock(rest[:end], line, starts_at_line, path)
            line += rest.count("\n", 0, end)
            starts_at_line, rest = rest[end : end + 1] in ("\n", DOCUMENT_END), rest[end:]


def _decode_file(path: Path) -> Iterator[str]:
    """Yield decoded text without a byte order mark. Line ends become line feeds."""
    decoder, lines, carry = codecs.getincrementaldecoder("utf-8-sig")(), 0, ""
    with open_binary(path) as file:
        for number, content in enumerate(chain(_read_chunks(file, path), (b"",))):
            if number == 0:
                reject_utf16(content, path)
            try:
                text = carry + decoder.decode(content, not content)
            except UnicodeDecodeError as error:
                raise not_utf8_error(
                    path, lines + carry.count("\n") + error.object[: error.start].count(b"\n") + 1
                ) from None
            carry = "\r" if text.endswith("\r") and content else ""
            text = text.removesuffix(carry).replace("\r\n", "\n")
            if "\0" in text:
                line_number = lines + text.count("\n", 0, text.index("\0")) + 1
                raise DataError("text_line_contains_nul", path=path, line=line_number)
            lines += text.count("\n")
            if text:
                yield text


def _read_chunks(file: BufferedIOBase, path: Path) -> Iterator[bytes]:
    try:
        while content := file.read(BLOCK_CHARACTERS):
            yield content
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError("file_read_failed", path=path, reason=error) from None


def cut_strided_windows(stream: Iterable[Ids], window: int, stride: int) -> Iterator[RaggedArray]:
    """Yield windows that start every `stride` tokens. The last one ends with the text, so all have equal length.

    A text shorter than a window has none.
    """
    rest, last, ahead = np.zeros(0, np.int32), np.zeros(0, np.int32), 0
    for ids in stream:
        rest, last = np.concatenate((rest, ids)), np.concatenate((last, ids))[-window:]
        count = max(0, (len(rest) - window) // stride + 1)
        if count:
            yield _to_ragged(sliding_window_view(rest, window)[::stride][:count])
            rest = rest[count * stride :]
            ahead = window - stride  # tokens of the rest that were in the last window
    if len(last) == window and len(rest) > ahead:
        yield _to_ragged(last[None])


def cut_contiguous_windows(stream: Iterable[Ids], window: int) -> Iterator[RaggedArray]:
    """Yield windows that start with the last token of the previous one. The last may be shorter.

    Every token of the text except the first is predicted exactly once.
    """
    rest = np.zeros(0, np.int32)
    for ids in stream:
        rest = np.concatenate((rest, ids))
        count = max(0, (len(rest) - 1) // (window - 1))
        if count:
            yield _to_ragged(sliding_window_view(rest, window)[:: window - 1][:count])
            rest = rest[count * (window - 1) :]
    if len(rest) > 1:
        yield _to_ragged(rest[None])


@dataclass(frozen=True)
class WindowBatches:
    """Batches of windows in order, read on demand. The first token of each window is given, not predicted."""

    windows: ShardSet
    rows: int  # per batch

    def __iter__(self) -> Iterator[Batch]:
        for first in range(0, len(self.windows), self.rows):
            _, target = self.windows.read(first, min(first + self.rows, len(self.windows)))
            yield collate_windows(target, first_is_given=True)


def _to_ragged(windows: NDArray[np.int32]) -> RaggedArray:
    count, width = windows.shape
    return RaggedArray(windows.reshape(-1), np.arange(count + 1, dtype=np.int64) * width)


@dataclass(frozen=True)
class TextSpan:
    """A range of a text, in characters."""

    text: TextFile
    first: int
    last: int

    def read_texts(self, split_anywhere: bool) -> Iterator[str]:
        """Yield the text of the range in blocks. Unless `split_anywhere`, blocks consist of whole lines."""
        position, read = 0, 0
        for block in self.text.read_blocks():
            if not (block.starts_at_line or split_anywhere):
                raise DataError("line_too_long_to_tokenize", path=block.path, line=block.line)
            text = block.text[max(0, self.first - position) : max(0, self.last - position)]
            position, read = position + len(block.text), read + len(text)
            if text:
                yield text
            if position >= self.last:
                break
        if read < self.last - self.first:
            raise DataError("text_shrank_while_reading", name=self.text.name)


@dataclass(frozen=True)
class TextScan:
    """The ranges for training and validation."""

    training: TextSpan
    validation: TextSpan
    lines: int  # in all files


def scan_text(settings: DataConfig, kind: str) -> TextScan:
    """Measure all text. The end is held out for validation, unless there is a validation file."""
    text, valid = make_text_files(settings)
    size = text.measure()
    if valid is not None:
        valid_size = valid.measure()
        parts = TextSpan(text, 0, size.characters), TextSpan(valid, 0, valid_size.characters)
        return TextScan(*parts, size.lines + valid_size.lines)
    border = int(size.characters * (1 - settings.valid_share))
    if kind not in _SPLITTABLE_KINDS:
        border = _find_next_break(text, border)
    return TextScan(TextSpan(text, 0, border), TextSpan(text, border, size.characters), size.lines)


def make_text_files(settings: DataConfig) -> tuple[TextFile, TextFile | None]:
    """Return the training text, and the validation text if it has its own files."""
    learnt, validated = settings.text_files
    field = {} if settings.text_field is None else {"field": settings.text_field}
    return TextFile(learnt, **field), TextFile(validated, **field) if validated else None


def sample_lines(span: TextSpan, kind: str, seed: int) -> list[str]:
    """Return lines to train the tokenizer on, sampled uniformly from the text."""
    sample = ReservoirSample(seed)
    for text in (text for piece in span.read_texts(split_anywhere=True) for text in piece.split(DOCUMENT_END)):
        sample.offer(
            [("", line) for line in (text.splitlines(keepends=True) if kind == NEWLINE_KIND else text.split("\n"))]
        )
    return [line for _, line in sample.pairs()]


class WindowWriter:
    """Writes training and validation windows as shards. The generator yields the lines read so far."""

    def __init__(self, settings: DataConfig, tokenizer: Tokenizer, folder: Path) -> None:
        if tokenizer.kind != NEWLINE_KIND and NEWLINE_SYMBOL not in tokenizer.symbols:
            raise UsageError("tokenizer_lacks_line_symbol", symbol=NEWLINE_SYMBOL)
        self.corpora: list[CorpusRecord] = []
        self.valid = ValidRecord(name=None, pairs=0, bad={})
        self._settings, self._tokenizer, self._folder = settings, NewlineTokenizer(tokenizer), folder
        self._lines, self._tokens = 0, 0

    def write(self, scan: TextScan, valid_texts: Path) -> Generator[int, None, None]:
        settings, window = self._settings, self._settings.window
        train = yield from self._write_shards(
            "train-00", scan.training, partial(cut_strided_windows, window=window, stride=settings.window_stride)
        )
        name, lines = scan.training.text.name, self._lines
        if self._tokens < 2 * window:
            raise DataError("training_text_too_short", name=name, tokens=self._tokens, window=window)
        self._tokens = 0
        valid = yield from self._write_shards(
            "valid-00", scan.validation, partial(cut_contiguous_windows, window=window)
        )
        valid_name = scan.validation.text.name
        if self._tokens < window:
            raise DataError("validation_text_too_short", name=valid_name, tokens=self._tokens, window=window)
        self.corpora.append(CorpusRecord.from_shards(train, name=name, weight=1.0, lines=lines, bad={}))
        self.valid = self.valid.replace(
            name=None if valid_name == name else valid_name, pairs=sum(each.pairs for each in valid), shards=valid
        )
        self._write_valid_excerpts(valid, valid_texts)

    def _write_shards(
        self, name: str, span: TextSpan, make_windows: Callable[[Iterable[Ids]], Iterator[RaggedArray]]
    ) -> Generator[int, None, tuple[ShardRecord, ...]]:
        shards = ShardWriter(self._folder, name, 2 if self._tokenizer.vocab_size <= 2**16 else 4)
        for windows in make_windows(self._encode(span)):
            shards.add(RaggedArray.from_lists([()] * len(windows)), windows)
            yield self._lines
        return shards.close()

    def _encode(self, span: TextSpan) -> Iterator[Ids]:
        for text in span.read_texts(self._tokenizer.kind in _SPLITTABLE_KINDS):
            first, *others = text.split(DOCUMENT_END)
            numbers = self._tokenizer.encode(first)
            for document in others:  # ends the previous document
                numbers += [EOS, *(self._tokenizer.encode(document) if document else ())]
            ids = np.array(numbers, np.int32)
            self._lines, self._tokens = self._lines + text.count("\n"), self._tokens + len(ids)
            yield ids

    def _write_valid_excerpts(self, records: tuple[ShardRecord, ...], path: Path) -> None:
        """Write some windows as text: a prompt and its continuation."""
        sizes = (self._tokenizer.vocab_size,) * 2
        windows = ShardSet(self._folder, records, sizes)
        numbers = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), MAX_VALID_EXCERPTS)).round().astype(int))
        with path.open("w", encoding="utf-8") as file:
            for number in numbers.tolist():
                ids = list(windows.example(number).target)
                count = min(MAX_PROMPT_TOKENS, len(ids) // 2)
                beginning, text = self._tokenizer.decode(ids[:count]), self._tokenizer.decode(ids)
                rest = text[len(beginning) :] if text.startswith(beginning) else self._tokenizer.decode(ids[count:])
                file.write(json.dumps({"source": beginning, "target": rest}, ensure_ascii=False) + "\n")


def _find_next_break(text: TextFile, position: int) -> int:
    """Return the first line break, or end of a document, at or after a position."""
    before = 0
    for block in text.read_blocks():
        for found in _LINE_OR_DOCUMENT_END.finditer(block.text, max(0, position - before)):
            border = before + (found.start() if found[0] == "\n" else found.end())
            if border > 0:
                return border
        before += len(block.text)
    raise DataError("validation_part_without_line_break", name=text.name)
