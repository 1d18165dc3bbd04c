"""Formats results as plain text, n-best lists, JSON lines or tables, and writes pictures and standard error."""

import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from attendo.cli.language import count_columns, current_language, list_names, pad_columns, say, translate
from attendo.cli.stdin import to_single_line
from attendo.errors import LocalizedText, UsageError, join_texts

if TYPE_CHECKING:
    from rich.console import Console

    from attendo.interop.certificate import Certificate
    from attendo.text_model import Alignment, Result

_MAX_WORDS = 20  # maximum number of unknown words in a warning
_UNMET_REASONS = {
    "vocabulary": "the target vocabulary does not have it",
    "banned": "it contains a banned phrase",
    "length": "the output reached its length limit; see --max-length",
    "search": "no output with it was found",
}


def format_plain(result: "Result", by_piece: bool = False) -> str:
    """Return the text and, after |||, the alignment if there is one. An empty line stays empty."""
    links = None if result.alignment is None or not result.source_tokens else _format_links(result.alignment, by_piece)
    return to_single_line(result.text) + ("" if links is None else f" ||| {links}")


def format_n_best(number: int, result: "Result", by_piece: bool = False) -> Iterator[str]:
    """Yield `LINE ||| text ||| F0= log-probability ||| score`, lines counted from 0; an alignment follows the text."""
    for each in result.hypotheses:
        alignment = "" if each.alignment is None else f"{_format_links(each.alignment, by_piece)} ||| "
        yield (
            f"{number} ||| {to_single_line(each.text)} ||| {alignment}F0= {each.log_probability:.6f} ||| "
            f"{each.score:.6f}"
        )


def _format_links(alignment: "Alignment", by_piece: bool) -> str:
    """Return the links in Pharaoh format, between tokens (`by_piece`) or between words of the text."""
    from attendo.text_model.results import format_pharaoh

    return format_pharaoh(alignment.links if by_piece else alignment.word_links)


def format_json(number: int, result: "Result", all_hypotheses: bool) -> str:
    """Return one JSON object. `line` is counted from 1."""
    from attendo.text_model.results import result_to_dict

    return json.dumps({"line": number + 1, **result_to_dict(result, all_hypotheses)}, ensure_ascii=False)


@dataclass(frozen=True)
class OutputStyle:
    """How `attendo generate` writes a result."""

    as_json: bool = False
    all_hypotheses: bool = False  # an n-best list
    by_piece: bool = False  # alignments

    def format_lines(self, number: int, result: "Result") -> Iterator[str]:
        """Yield the lines of a result. Lines of the input are counted from 0."""
        if self.as_json:
            yield format_json(number, result, self.all_hypotheses)
        elif self.all_hypotheses:
            yield from format_n_best(number, result, self.by_piece)
        else:
            yield format_plain(result, self.by_piece)

    def make_value(self, result: "Result") -> str | list[str] | dict[str, Any]:
        """Return a result as a value of JSON: a text, the texts of an n-best list, or an object with scores."""
        if self.as_json:
            from attendo.text_model.results import result_to_dict

            return result_to_dict(result, self.all_hypotheses)
        return (
            [to_single_line(each.text) for each in result.hypotheses]
            if self.all_hypotheses
            else format_plain(result, self.by_piece)
        )


def list_warnings(number: int, result: "Result", ends: bool = True) -> Iterator[str]:
    """Yield warnings about a result, with the input line counted from 1. Without `ends`, cut outputs are normal."""
    if result.unknown:
        yield say(
            "line {number}: {unknown_words}", number=number + 1, unknown_words=format_unknown_words(result.unknown)
        )
    if result.source_left_out:
        yield say(
            "line {number}: the last {source_left_out} tokens were not read; see --max-source",
            number=number + 1,
            source_left_out=result.source_left_out,
        )
    if result.unsplit:
        yield say(
            "line {number}: {unsplit} sentences read as one, where the model was trained on single ones",
            number=number + 1,
            unsplit=result.unsplit,
        )
    if result.cut and ends:
        yield say(
            "line {number}: cut at {num_ids} tokens; see --max-length", number=number + 1, num_ids=len(result.ids)
        )
    yield from _list_faults(number, result)
    if not all(result.constraints):
        yield say(
            "line {number}: {count} of {num_constraints} constraints not met",
            number=number + 1,
            count=result.constraints.count(False),
            num_constraints=len(result.constraints),
        )
    yield from _list_unmet_terms(number, result)


def _list_faults(number: int, result: "Result") -> Iterator[str]:
    """Yield the faults that a check found, and the repairs."""
    for fault in result.faults:
        if fault.kind != "truncated":  # as above
            yield say(
                "line {number}: {kind}: {evidence}",
                number=number + 1,
                kind=LocalizedText(fault.kind.replace("_", " ")),
                evidence=fault.evidence,
            )
    for repair in result.repairs:
        if repair.kept:
            yield say(
                "line {number}: generated again ({by}) because of {faults}",
                number=number + 1,
                by=LocalizedText(repair.by),
                faults=join_texts([LocalizedText(kind.replace("_", " ")) for kind in repair.faults_before]),
            )


def _list_unmet_terms(number: int, result: "Result") -> Iterator[str]:
    for each in result.terms:
        if not each.met:
            yield say(
                "line {number}: {source} is not translated as {target}: {reason}",
                number=number + 1,
                source=each.source,
                target=each.target,
                reason=say(_UNMET_REASONS[each.reason]),
            )


def format_split_summary(sentences: Sequence[int], lines: int, by_default: bool) -> str:
    """Describe the number of split lines and the reason. `sentences` has the sentence count of each split line."""
    reason = say("; the model was trained on single sentences (--no-split reads lines whole)") if by_default else ""
    return say(
        "{num_sentences:,} of {lines:,} lines split into {count:,} sentences{reason}",
        num_sentences=len(sentences),
        lines=lines,
        count=sum(sentences),
        reason=reason,
    )


def format_unknown_words(words: Sequence[str]) -> str:
    """Name the first 20 unknown words and count the rest."""
    from attendo.errors import shorten

    more = say(" and {num_words:,} more", num_words=len(words) - _MAX_WORDS) if len(words) > _MAX_WORDS else ""
    return say("not in the vocabulary: {names}{more}", names=list_names(map(shorten, words[:_MAX_WORDS])), more=more)


class BestEffortStderr:
    """The current standard error. After a failed write, later writes are ignored."""

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
        except (OSError, ValueError):  # closed pipe, full disk, closed terminal or closed file
            self._broken = True

    def __getattr__(self, name: str) -> Any:  # a console also reads isatty and encoding
        return getattr(_unwrap_stderr(), name)


def _unwrap_stderr() -> TextIO:
    """Return the real standard error, not the proxy of a live display, which would call this object again."""
    found: TextIO = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return found


def make_stderr_console(quiet: bool = False) -> "Console":
    from rich.console import Console

    file: Any = BestEffortStderr()
    return Console(file=file, quiet=quiet)


def print_stderr(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr, flush=True)


def print_certificate(certificate: "Certificate", as_json: bool) -> None:
    print(json.dumps(certificate.as_json()) if as_json else certificate.as_table(current_language()), flush=True)


def align_columns(
    rows: Sequence[Mapping[str, str]], left_aligned: Container[str], translates: bool = True
) -> Iterator[str]:
    """Yield the lines of a table, headings first. Columns without any value are left out.

    `translates` is False for headings that are names given by the user.
    """
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) for row in rows)]
    lines = [{name: translate(name) if translates else name for name in names}, *rows]
    widths = {name: max(count_columns(line.get(name, "")) for line in lines) for name in names}
    for line in lines:
        cells = (pad_columns(line.get(name, ""), widths[name], name not in left_aligned) for name in names)
        yield "  ".join(cells).rstrip()


def check_picture_format(path: Path, command: str) -> str:
    """Check that the picture can be drawn, and return its format."""
    from attendo.explore.figure_style import FORMATS, require_matplotlib

    if (file_format := path.suffix.removeprefix(".").lower()) not in FORMATS:
        raise UsageError("unknown_picture_format", path=path)
    require_matplotlib(command)
    return file_format


def write_picture(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
