"""Lines of standard input in blocks, so that memory stays the same however many come."""

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

from attendo.errors import DataError, ModelError, UsageError

FIRST_LINES = 16  # of the first block: a person soon sees something
LINES_AT_ONCE = 2048  # read, sorted by length and decoded together; a terminal is answered line by line
MIN_PROGRESS_SECONDS = 2.0  # seconds: shorter work needs no word on how far it is

_CHUNK = 1 << 18  # bytes read at a time
_POLL_SECONDS = 0.05  # seconds: a program that writes all the time is not cut short, one that waits hardly feels it

# All that some program takes for the end of a line.
_BREAKS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def read_input_blocks(errors: Literal["strict", "replace"]) -> Iterator[list[str]]:
    """A line that cannot be read ends it, but not before the lines above it are answered.

    Nor is anybody kept waiting who writes some lines into a pipe and waits for their answers.
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
    """A text file that takes the place of `path` when all is written; what goes wrong leaves that as it was."""
    place = path.with_name(f".tmp-{path.name}")
    try:
        with place.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        place.replace(path)
    except OSError as error:
        if error.filename in (str(place), str(path)):
            raise UsageError("output_file_not_writable", path=path, reason=error.strerror) from None
        raise
    finally:
        place.unlink(missing_ok=True)


def to_single_line(text: str) -> str:
    """One line in, one line out: whatever could be taken for its end is a space."""
    return _BREAKS.sub(" ", text)


@contextmanager
def name_line_in_errors(file: Path, lines_before: int = 0, line_indices: Sequence[int] | None = None) -> Iterator[None]:
    """What is wrong with a text is told of its line: so many stand before the first text, or those at `line_indices`."""
    from attendo.text_model import NotANumberError, TooLongError
    from attendo.text_model.options import message_without_position

    try:
        yield
    except (TooLongError, NotANumberError) as error:
        line = lines_before + (error.number if line_indices is None else line_indices[error.number]) + 1
        what = message_without_position(error)
        if isinstance(error, NotANumberError):
            raise ModelError("line_log_probability_nan", path=file, line=line, problem=what) from None
        raise DataError("input_line_too_long", path=file, line=line, problem=what.partition(":")[0]) from None


class LineCounter:
    """How far the work is, on standard error where that is a terminal and nothing else is being shown there."""

    def __init__(self) -> None:
        self._start, self._lines, self._visible = time.monotonic(), 0, False
        self._enabled = sys.stderr.isatty() and not sys.stdin.isatty() and not sys.stdout.isatty()

    def add(self, lines: int) -> None:
        self._lines += lines
        seconds = time.monotonic() - self._start
        if self._enabled and seconds > MIN_PROGRESS_SECONDS:
            print(
                f"\r{self._lines:,} lines, {self._lines / seconds:,.0f} a second", end="", file=sys.stderr, flush=True
            )
            self._visible = True

    def clear(self) -> None:
        """Before something else is said, and at the end."""
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._visible = False


class _StdinReader:
    """Standard input line by line, which knows whether another line is there."""

    def __init__(self) -> None:
        try:
            self._file: int | None = sys.stdin.fileno()
        except OSError:  # it is no file of the system's
            self._file = None
        self._complete_lines: deque[bytes] = deque()
        self._partial_line: list[bytes] = []  # of the line behind these

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
        """Whether no line is there, nor comes soon; at the end of a file that is not so."""
        if self._complete_lines or self._file is None:
            return False
        try:
            return not select.select([self._file], [], [], _POLL_SECONDS)[0]
        except (OSError, ValueError):  # a kind of file that cannot be asked
            return False


def _decode_lines(source: _StdinReader, errors: Literal["strict", "replace"]) -> Iterator[str]:
    from attendo.data.corpus_files import read_raw_lines

    for number, line in enumerate(read_raw_lines(source, "standard input"), start=1):
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise DataError("stdin_line_not_utf8", line=number) from None
