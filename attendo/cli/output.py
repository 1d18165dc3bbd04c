"""Results as plain text, n-best lists or JSON lines, and a console on standard error."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from attendo.cli.stdin import one_line

if TYPE_CHECKING:
    from attendo.text_model import Alignment, Result

_NAMED = 20  # unknown words of a line that are told


def plain(result: "Result", pieces: bool = False) -> str:
    """The text; behind ||| the alignment, where there is one. An empty line stays empty."""
    links = None if result.alignment is None or not result.source_tokens else _links(result.alignment, pieces)
    return one_line(result.text) + ("" if links is None else f" ||| {links}")


def n_best(number: int, result: "Result", pieces: bool = False) -> Iterator[str]:
    """`LINE ||| text ||| F0= log-probability ||| score`, lines counted from 0; an alignment behind the text."""
    for each in result.hypotheses:
        alignment = "" if each.alignment is None else f"{_links(each.alignment, pieces)} ||| "
        yield f"{number} ||| {one_line(each.text)} ||| {alignment}F0= {each.log_probability:.6f} ||| {each.score:.6f}"


def _links(alignment: "Alignment", pieces: bool) -> str:
    """Of tokens (`pieces`), or of the words that the text shows."""
    from attendo.text_model.results import pharaoh

    return pharaoh(alignment.links if pieces else alignment.word_links)


def as_json(number: int, result: "Result", several: bool) -> str:
    """One object; `line` is counted from 1. `several`: with all hypotheses."""
    from attendo.text_model.results import plain_result

    return json.dumps({"line": number + 1, **plain_result(result, several)}, ensure_ascii=False)


def warnings(number: int, result: "Result", ends: bool = True) -> Iterator[str]:
    """What was not done as asked, with the line of the input, counted from 1; `ends`: answers have an end."""
    if result.unknown:
        yield f"line {number + 1}: {not_in_the_vocabulary(result.unknown)}"
    if result.source_left_out:
        yield f"line {number + 1}: the last {result.source_left_out} tokens were not read; see --max-source"
    if result.unsplit:
        yield f"line {number + 1}: {result.unsplit} sentences read as one, where the model was trained on single ones"
    if result.cut and ends:
        yield f"line {number + 1}: cut at {len(result.ids)} tokens; see --max-length"
    if not all(result.constraints):
        yield f"line {number + 1}: {result.constraints.count(False)} of {len(result.constraints)} constraints not met"


def split_lines(sentences: Sequence[int], lines: int, by_default: bool) -> str:
    """How many lines were split, and why; `sentences` of each of them."""
    reason = "; the model was trained on single sentences (--no-split reads lines whole)" if by_default else ""
    return f"{len(sentences):,} of {lines:,} lines split into {sum(sentences):,} sentences{reason}"


def not_in_the_vocabulary(words: Sequence[str]) -> str:
    """The first of them by name, and how many more there are."""
    from attendo.text_model.options import shown

    more = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
    return f"not in the vocabulary: {', '.join(map(shown, words[:_NAMED]))}{more}"


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
