"""Lines of standard input in blocks, so that memory stays the same however many come."""

import re
import sys
import time
from collections.abc import Iterator
from typing import Literal

from attendo.errors import DataError

FIRST_LINES = 16  # of the first block: a person soon sees something
LINES_AT_ONCE = 2048  # read, sorted by length and decoded together; a terminal is answered line by line
SHOWN_AFTER = 2.0  # seconds: shorter work needs no word on how far it is

# All that some program takes for the end of a line.
_BREAKS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def input_blocks(errors: Literal["strict", "replace"]) -> Iterator[list[str]]:
    """A line that cannot be read ends it, but not before the lines above it are answered."""
    size, later = (1, 1) if sys.stdin.isatty() else (FIRST_LINES, LINES_AT_ONCE)
    block: list[str] = []
    try:
        for line in _lines(errors):
            block.append(line)
            if len(block) == size:
                yield block
                block, size = [], later
    except DataError:
        yield block
        raise
    yield block


def one_line(text: str) -> str:
    """One line in, one line out: whatever could be taken for its end is a space."""
    return _BREAKS.sub(" ", text)


class Standing:
    """How far the work is, on standard error where that is a terminal and nothing else is being shown there."""

    def __init__(self) -> None:
        self._begun, self._lines, self._shown = time.monotonic(), 0, False
        self._wanted = sys.stderr.isatty() and not sys.stdin.isatty() and not sys.stdout.isatty()

    def add(self, lines: int) -> None:
        self._lines += lines
        seconds = time.monotonic() - self._begun
        if self._wanted and seconds > SHOWN_AFTER:
            print(
                f"\r{self._lines:,} lines, {self._lines / seconds:,.0f} a second", end="", file=sys.stderr, flush=True
            )
            self._shown = True

    def clear(self) -> None:
        """Before something else is said, and at the end."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _lines(errors: Literal["strict", "replace"]) -> Iterator[str]:
    from attendo.data.parallel import raw_lines

    for number, line in enumerate(raw_lines(sys.stdin.buffer, "standard input"), start=1):
        try:
            yield line.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise DataError(
                f"standard input line {number} is not UTF-8: convert the text, or take --errors replace"
            ) from None
