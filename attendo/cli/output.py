"""Results as plain text, n-best lists or JSON lines, and a console on standard error."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from attendo.cli.stdin import to_single_line

if TYPE_CHECKING:
    from attendo.text_model import Alignment, Result

_MAX_WORDS = 20  # unknown words of a line that are told


def format_plain(result: "Result", by_piece: bool = False) -> str:
    """The text; behind ||| the alignment, where there is one. An empty line stays empty."""
    links = None if result.alignment is None or not result.source_tokens else _format_links(result.alignment, by_piece)
    return to_single_line(result.text) + ("" if links is None else f" ||| {links}")


def format_n_best(number: int, result: "Result", by_piece: bool = False) -> Iterator[str]:
    """`LINE ||| text ||| F0= log-probability ||| score`, lines counted from 0; an alignment behind the text."""
    for each in result.hypotheses:
        alignment = "" if each.alignment is None else f"{_format_links(each.alignment, by_piece)} ||| "
        yield (
            f"{number} ||| {to_single_line(each.text)} ||| {alignment}F0= {each.log_probability:.6f} ||| "
            f"{each.score:.6f}"
        )


def _format_links(alignment: "Alignment", by_piece: bool) -> str:
    """Of tokens (`by_piece`), or of the words that the text shows."""
    from attendo.text_model.results import format_pharaoh

    return format_pharaoh(alignment.links if by_piece else alignment.word_links)


def format_json(number: int, result: "Result", all_hypotheses: bool) -> str:
    """One object; `line` is counted from 1. `all_hypotheses`: with all hypotheses."""
    from attendo.text_model.results import result_to_dict

    return json.dumps({"line": number + 1, **result_to_dict(result, all_hypotheses)}, ensure_ascii=False)


def list_warnings(number: int, result: "Result", ends: bool = True) -> Iterator[str]:
    """What was not done as asked, with the line of the input, counted from 1; `ends`: answers have an end."""
    if result.unknown:
        yield f"line {number + 1}: {format_unknown_words(result.unknown)}"
    if result.source_left_out:
        yield f"line {number + 1}: the last {result.source_left_out} tokens were not read; see --max-source"
    if result.unsplit:
        yield f"line {number + 1}: {result.unsplit} sentences read as one, where the model was trained on single ones"
    if result.cut and ends:
        yield f"line {number + 1}: cut at {len(result.ids)} tokens; see --max-length"
    if not all(result.constraints):
        yield f"line {number + 1}: {result.constraints.count(False)} of {len(result.constraints)} constraints not met"


def format_split_summary(sentences: Sequence[int], lines: int, by_default: bool) -> str:
    """How many lines were split, and why; `sentences` of each of them."""
    reason = "; the model was trained on single sentences (--no-split reads lines whole)" if by_default else ""
    return f"{len(sentences):,} of {lines:,} lines split into {sum(sentences):,} sentences{reason}"


def format_unknown_words(words: Sequence[str]) -> str:
    """The first of them by name, and how many more there are."""
    from attendo.text_model.options import shorten

    more = f" and {len(words) - _MAX_WORDS:,} more" if len(words) > _MAX_WORDS else ""
    return f"not in the vocabulary: {', '.join(map(shorten, words[:_MAX_WORDS]))}{more}"


class BestEffortStderr:
    """Standard error as it is at the moment, until it cannot be written; then nothing."""

    def __init__(self) -> None:
        self._broken = False

    def write(self, text: str) -> int:
        self._try(lambda: _unwrap_stderr().write(text))
        return len(text)

    def flush(self) -> None:
        self._try(_unwrap_stderr().flush)

    def _try(self, action: Any) -> None:
        if self._broken:
            return
        try:
            action()
        except (OSError, ValueError):  # the reader left, the disk is full, the terminal is gone, the file was closed
            self._broken = True

    def __getattr__(self, name: str) -> Any:  # what a console asks a file for: whether it is a terminal, its encoding
        return getattr(_unwrap_stderr(), name)


def _unwrap_stderr() -> TextIO:
    """Itself, not what a live display puts in its place, which would come back to us."""
    found: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return found


def make_stderr_console(quiet: bool = False) -> Console:
    file: Any = BestEffortStderr()
    return Console(file=file, quiet=quiet)
