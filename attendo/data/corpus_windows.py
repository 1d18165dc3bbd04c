"""Windows of a corpus: consecutive lines that are filtered and encoded together, in any process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from attendo.data.corpus_files import Corpus, FileCorpus, TextRow, make_row_parser

WINDOW_LINES = 4096  # lines of the files; rows of a corpus without files


@dataclass(frozen=True)
class Window:
    """Consecutive lines of a corpus."""

    corpus: int  # its index; the validation corpus is the last one
    number: int  # from 0
    lines: int
    first_pair: int = 0  # number of pairs before it, in all corpora; known after the scan


@dataclass(frozen=True)
class WindowLines:
    """The lines of a window, and how each becomes rows. A conversation has several."""

    lines: Sequence[Any]
    parse: Callable[[Any], Sequence[TextRow]]

    def rows(self) -> list[TextRow]:
        return [row for line in self.lines for row in self.parse(line)]


def read_windows(corpus: Corpus, index: int) -> Iterator[tuple[Window, WindowLines]]:
    """Yield all windows of a corpus with their lines."""
    lines, parse = _open_corpus(corpus)
    for number, part in enumerate(iter(lambda: list(islice(lines, WINDOW_LINES)), [])):
        yield Window(index, number, len(part)), WindowLines(part, parse)


class WindowReader:
    """Reads windows. Later windows of the same corpus are read on from there, without a second pass."""

    def __init__(self, corpora: Sequence[Corpus]) -> None:
        self._corpora = corpora
        self._corpus, self._line = -1, 0  # the next line

    def read(self, window: Window) -> WindowLines:
        first = window.number * WINDOW_LINES
        if window.corpus != self._corpus or first < self._line:
            self._lines, self._parse = _open_corpus(self._corpora[window.corpus])
            self._corpus, self._line = window.corpus, 0
        found = list(islice(self._lines, first - self._line, first - self._line + window.lines))
        self._line = first + len(found)
        return WindowLines(found, self._parse)


def _open_corpus(corpus: Corpus) -> tuple[Iterator[Any], Callable[[Any], Sequence[TextRow]]]:
    if isinstance(corpus, FileCorpus):
        return corpus.lines(), make_row_parser(corpus.config)
    return iter(corpus.rows()), lambda row: ((row.source, row.target, row.fault, row.links),)
