"""Standard error for work that goes on when nobody reads it any more: a closed pipe must not end a training."""

import sys
from typing import Any, TextIO

from rich.console import Console


class Steady:
    """Standard error as it is at the moment, until it cannot be written; then nothing."""

    def __init__(self) -> None:
        self._gone = False

    def write(self, text: str) -> int:
        self._try(lambda: _standard_error().write(text))
        return len(text)

    def flush(self) -> None:
        self._try(_standard_error().flush)

    def _try(self, do: Any) -> None:
        if self._gone:
            return
        try:
            do()
        except (OSError, ValueError):  # the reader left, the disk is full, the terminal is gone, the file was closed
            self._gone = True

    def __getattr__(self, name: str) -> Any:  # what a console asks a file for: whether it is a terminal, its encoding
        return getattr(_standard_error(), name)


def _standard_error() -> TextIO:
    """Itself, not what a live display puts in its place, which would come back to us."""
    found: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return found


def steady_console(quiet: bool = False) -> Console:
    file: Any = Steady()
    return Console(file=file, quiet=quiet)
