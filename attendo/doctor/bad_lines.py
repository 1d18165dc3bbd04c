"""Reports bad lines, and finds the line number of a training pair."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attendo.data.config import DataConfig
from attendo.data.filtering import suggest_remedy
from attendo.data.index import Index, read_index
from attendo.data.line_filters import FILTER_REASONS
from attendo.data.prepared import PreparedData
from attendo.doctor.finding import MAX_EXAMPLES, Finding, format_count, format_share
from attendo.errors import AttendoError, LocalizedText, cut_line, join_texts
from attendo.runs.corpora import make_corpora

BAD_LINES = "bad-lines.tsv"
_DROPPED_WARNING_SHARE = 0.05  # a warning from this share of dropped alignments
_BAD_WARNING_SHARE = 0.005  # a warning from this share of bad lines


def check_bad_lines(data: PreparedData) -> Finding:
    """Report the lines that data preparation skipped, by reason."""
    index, _ = read_index(data.folder)
    reasons: Counter[str] = Counter()
    for bad in (*(corpus.bad for corpus in index.corpora), index.valid.bad):
        reasons.update(bad)
    lines = sum(corpus.lines for corpus in index.corpora)
    if index.valid.name is not None:  # held-out validation pairs are already counted
        lines += index.valid.pairs + sum(index.valid.bad.values())
    count = reasons.total()
    unwanted = sum(each for reason, each in reasons.items() if reason not in FILTER_REASONS)
    values = {"lines": lines, "bad": count, **{reason.replace(" ", "_"): each for reason, each in reasons.items()}}
    if not count:
        return Finding(
            "bad lines", "ok", LocalizedText("none in {lines}", lines=format_count(lines, "lines")), values=values
        )
    return Finding(
        "bad lines",
        "warning" if unwanted >= _BAD_WARNING_SHARE * lines else "note",
        LocalizedText(
            "{count:,} of {lines} are left out ({share}): {reasons}",
            count=count,
            lines=format_count(lines, "lines"),
            share=format_share(count / lines),
            reasons=_format_reasons(reasons),
        ),
        LocalizedText("mend them or take them out; attendo prepare lists all of them in {file}", file=BAD_LINES)
        if unwanted
        else "",
        _format_examples(data.folder / BAD_LINES),
        values,
    )


def check_alignments(data: PreparedData) -> Finding:
    """Report the pairs whose word alignment was dropped, because the tokenizer changes their words."""
    aligned = [corpus for corpus in data.corpora if corpus.links is not None]
    pairs, dropped = sum(len(corpus.shards) for corpus in aligned), sum(corpus.unlinked for corpus in aligned)
    values = {"pairs": data.pairs, "aligned": pairs - dropped, "dropped": dropped}
    found = LocalizedText("{aligned:,} of {pairs:,} pairs have one", aligned=pairs - dropped, pairs=data.pairs)
    if dropped < _DROPPED_WARNING_SHARE * max(1, pairs):
        return Finding("alignments", "ok", found, values=values)
    found += LocalizedText("; {dropped:,} were dropped: their words change in the tokenizer", dropped=dropped)
    return Finding(
        "alignments", "warning", found, "separate words by single spaces, and avoid unknown characters", values=values
    )


def report_too_many_bad_lines(listing: Path, max_bad_ratio: float) -> Finding:
    """Report that preparation rejected the data. The reasons are read from the list it wrote."""
    reasons = Counter(reason for _, _, reason in _read_bad_lines(listing))
    return Finding(
        "bad lines",
        "fault",
        LocalizedText(
            "{lines} are bad, more than data.max_bad_ratio allows: {reasons}",
            lines=format_count(reasons.total(), "lines"),
            reasons=_format_reasons(reasons),
        ),
        LocalizedText("{remedy}", remedy=suggest_remedy(reasons, max_bad_ratio)) if reasons else "",
        _format_examples(listing),
        {"bad": reasons.total(), **{reason.replace(" ", "_"): count for reason, count in reasons.items()}},
    )


class LineLocator:
    """Finds the origin of a pair: its line in the text, or its pair number if the line is unknown."""

    def __init__(self, data: PreparedData, lines: bool = True) -> None:
        """Without `lines`, pairs are named by number, because finding lines reads all text again."""
        self._data = data
        self._skipped_lines: list[NDArray[np.int64] | None] | None = None if lines else [None] * len(data.corpora)

    def find_line(self, corpus: int, pair: int) -> int | None:
        """Return the line of a pair, or None. Lines count from 1, pairs from 0."""
        if self._skipped_lines is None:
            self._skipped_lines = _find_skipped_lines(self._data)
        numbers = self._skipped_lines[corpus]
        if numbers is None:
            return None
        # The number of pairs before a skipped line is the number of earlier lines that were not skipped.
        pairs_before = numbers - 1 - np.arange(len(numbers))
        return pair + 1 + int(np.searchsorted(pairs_before, pair, side="right"))

    def describe(self, corpus: int, pair: int) -> str:
        line = self.find_line(corpus, pair)
        number = LocalizedText("pair {number:,}" if line is None else "line {number:,}", number=line or pair + 1)
        return self._with_corpus(corpus, number)

    def describe_span(self, corpus: int, first: int, last: int) -> str:
        """Describe the range from the first pair to the last, both included."""
        begin, end = self.find_line(corpus, first), self.find_line(corpus, last)
        if begin is None or end is None:
            return self._with_corpus(
                corpus, LocalizedText("pairs {first:,} to {last:,}", first=first + 1, last=last + 1)
            )
        return self._with_corpus(corpus, LocalizedText("lines {first:,} to {last:,}", first=begin, last=end))

    def quote(self, corpus: int, pair: int) -> str:
        """Return the location and the texts of a pair."""
        ids = self._data.corpora[corpus].shards.example(pair)
        source = cut_line(self._data.source_tokenizer.decode(ids.source))
        target = cut_line(self._data.target_tokenizer.decode(ids.target))
        place = self.describe(corpus, pair)
        return LocalizedText("{place}: {source} → {target}", place=place, source=source, target=target)

    def _with_corpus(self, corpus: int, place: LocalizedText) -> str:
        if len(self._data.corpora) == 1:
            return place
        return LocalizedText("{corpus} {place}", corpus=self._data.corpora[corpus].name, place=place)


def _find_skipped_lines(data: PreparedData) -> list[NDArray[np.int64] | None]:
    """Return the lines of each corpus that are not training pairs, in order, or None if they are unknown."""
    index, _ = read_index(data.folder)
    bad: dict[str, set[int]] = {}
    for name, number, _ in _read_bad_lines(data.folder / BAD_LINES):
        bad.setdefault(name, set()).add(number)
    try:
        held_out_lines = _find_held_out_lines(data, index)
    except (AttendoError, OSError):  # the text may be missing or changed
        return [None] * len(index.corpora)
    found: list[NDArray[np.int64] | None] = []
    for corpus, held_out in zip(index.corpora, held_out_lines, strict=True):
        numbers = np.array(sorted(held_out | bad.get(" ".join(corpus.name.split()), set())), np.int64)
        found.append(numbers if len(numbers) + corpus.pairs == corpus.lines else None)
    return found


def _find_held_out_lines(data: PreparedData, index: Index) -> list[set[int]]:
    """Return the lines of each corpus that became validation pairs.

    Without validation files, held-out pairs are stored as text only, so their lines are searched for.
    """
    if index.valid.name is not None or not data.valid:
        return [set() for _ in index.corpora]
    sources = {source for source, _ in data.valid}
    training, _ = make_corpora(DataConfig(**index.settings["data"]), index.settings["seed"])
    return [{row.number for row in corpus.rows() if row.fault is None and row.source in sources} for corpus in training]


def _format_reasons(reasons: Counter[str]) -> str:
    return join_texts(
        LocalizedText("{count:,} {reason}", count=count, reason=LocalizedText(reason))
        for reason, count in reasons.most_common()
    )


def _format_examples(listing: Path) -> tuple[str, ...]:
    return tuple(
        LocalizedText("{file} line {number:,}: {reason}", file=name, number=number, reason=LocalizedText(reason))
        for name, number, reason in islice(_read_bad_lines(listing), MAX_EXAMPLES)
    )


def _read_bad_lines(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield corpus, line and reason."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            name, number, reason = line.rstrip("\n").split("\t")
            yield name, int(number), reason
