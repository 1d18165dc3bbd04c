"""Reads standard input in blocks of lines, so that memory use is constant."""

import os
import re
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from attendo import atomic_files
from attendo.cli.language import say
from attendo.errors import DataError, MessagePart, ModelError, UsageError

FIRST_LINES = 16  # lines in the first block; small, so that the first results appear soon
LINES_AT_ONCE = 2048  # lines read, sorted by length and decoded together; a terminal gets one line at a time
MIN_PROGRESS_SECONDS = 2.0  # no progress is shown before this time

_CHUNK = 1 << 18  # bytes per read
_POLL_SECONDS = 0.05  # wait for another line; long enough for a continuous writer, short for an interactive one

# All characters that some program treats as a line break.
_BREAKS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def read_input_blocks(errors: Literal["strict", "replace"]) -> Iterator[list[str]]:
    """Yield blocks of lines. On a line that cannot be decoded, yield the earlier lines, then raise.

    A block also ends when the writer of a pipe pauses, so that its lines are answered at once.
    """
    if sys.stdin is None:
        raise UsageError("stdin_closed")
    size, later = (1, 1) if sys.stdin.isatty() else (FIRST_LINES, LINES_AT_ONCE)
    block: list[str] = []
    source = _StdinReader()
    try:
        for line in _decode_lines(source, errors):
            block.append(line)
            if len(block) == size or source.is_idle():
                yield block
                block, size = [], later
    except DataError:
        yield block
        raise
    yield block


@contextmanager
def replace_text_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file that replaces `path` when it is complete. On an error, `path` is unchanged."""
    new = atomic_files.temporary_path(path)
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        atomic_files.move_into_place(new, path)
    except OSError as error:
        if error.filename in (str(new), str(path)):
            raise UsageError("output_file_not_writable", path=path, reason=error.strerror) from None
        raise
    finally:
        atomic_files.remove(new)


def to_single_line(text: str) -> str:
    """Replace all line breaks by spaces."""
    return _BREAKS.sub(" ", text)


@contextmanager
def name_line_in_errors(
    file: Path, lines_before: int = 0, line_indices: Sequence[int] | None = None, can_split: bool = False
) -> Iterator[None]:
    """Name the file and line of a bad text in errors: text n is line `lines_before` + n, or `line_indices[n]`.

    `can_split` is True for a command with --split, which `text_exceeds_model_limit` recommends.
    """
    from attendo.text_model import NotANumberError, TooLongError

    try:
        yield
    except (TooLongError, NotANumberError) as error:
        line = lines_before + (error.number if line_indices is None else line_indices[error.number]) + 1
        values = {**error.values, "text": MessagePart("line_of_file", path=file, line=line)}
        if isinstance(error, NotANumberError):
            raise ModelError("text_log_probability_nan", **values) from None
        code = (
            "source_exceeds_model_limit" if error.code == "text_exceeds_model_limit" and not can_split else error.code
        )
        raise DataError(code, **values) from None


class LineCounter:
    """Line count on standard error, if only that is a terminal."""

    def __init__(self) -> None:
        self._start, self._lines, self._visible = time.monotonic(), 0, False
        self._enabled = sys.stderr.isatty() and not sys.stdin.isatty() and not sys.stdout.isatty()

    def add(self, lines: int) -> None:
        self._lines += lines
        seconds = time.monotonic() - self._start
        if self._enabled and seconds > MIN_PROGRESS_SECONDS:
            shown = say("{lines:,} lines, {speed:,.0f} a second", lines=self._lines, speed=self._lines / seconds)
            print(f"\r{shown}", end="", file=sys.stderr, flush=True)
            self._visible = True

    def clear(self) -> None:
        """Erase the count before other output and at the end."""
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._visible = False


class _StdinReader:
    """Reads standard input line by line and detects when the writer pauses."""

    def __init__(self) -> None:
        try:
            self._file: int | None = sys.stdin.fileno()
        except OSError:  # standard input has no file descriptor
            self._file = None
        self._complete_lines: deque[bytes] = deque()
        self._partial_line: list[bytes] = []  # start of the next line

    def __iter__(self) -> Iterator[bytes]:
        if self._file is None:
            yield from sys.stdin.buffer
            return
        while chunk := os.read(self._file, _CHUNK):
            first, *others = chunk.split(b"\n")
            self._partial_line.append(first)
            if others:
                self._complete_lines.extend((b"".join(self._partial_line), *others[:-1]))
                self._partial_line = [others[-1]]
            while self._complete_lines:
                yield self._complete_lines.popleft()
        if last := b"".join(self._partial_line):
            yield last

    def is_idle(self) -> bool:
        """Return True if no line is available and none arrives within 0.05 s. False at the end of a file."""
        if self._complete_lines or self._file is None:
            return False
        try:
            return not select.select([self._file], [], [], _POLL_SECONDS)[0]
        except (OSError, ValueError):  # select does not support this file
            return False


def _decode_lines(source: _StdinReader, errors: Literal["strict", "replace"]) -> Iterator[str]:
    from attendo.data.corpus_files import read_raw_lines

    for number, line in enumerate(read_raw_lines(source, "standard input"), start=1):
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise DataError("stdin_line_not_utf8", line=number) from None
