"""Lines that did not become training pairs: how many are bad, and which line a pair comes from in spite of them."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attendo.data.config import DataConfig
from attendo.data.filtering import remedy
from attendo.data.index import Index, read_index
from attendo.data.prepared import Prepared
from attendo.doctor.finding import MOST_EXAMPLES, Finding, counted, share, shortened
from attendo.errors import AttendoError
from attendo.runs.corpora import corpora

BAD_LINES = "bad-lines.tsv"
_WORTH_A_LOOK = 0.005  # share of bad lines


def bad_lines(data: Prepared) -> Finding:
    """What preparing the data left out, by reason."""
    index, _ = read_index(data.folder)
    reasons: Counter[str] = Counter()
    for bad in (*(corpus.bad for corpus in index.corpora), index.valid.bad):
        reasons.update(bad)
    lines = sum(corpus.lines for corpus in index.corpora)
    if index.valid.name is not None:  # or else its pairs were among those lines
        lines += index.valid.pairs + sum(index.valid.bad.values())
    count = reasons.total()
    values = {"lines": lines, "bad": count, **{reason.replace(" ", "_"): each for reason, each in reasons.items()}}
    if not count:
        return Finding("bad lines", "ok", f"none in {counted(lines, 'lines')}", values=values)
    return Finding(
        "bad lines",
        "warning" if count >= _WORTH_A_LOOK * lines else "note",
        f"{count:,} of {counted(lines, 'lines')} are left out ({share(count / lines)}): {_by_reason(reasons)}",
        f"mend them or take them out; attendo prepare lists all of them in {BAD_LINES}",
        _examples(data.folder / BAD_LINES),
        values,
    )


def too_many_bad_lines(listing: Path, max_bad_ratio: float) -> Finding:
    """The data was refused; what is wrong stands in the list that was left."""
    reasons = Counter(reason for _, _, reason in _listed(listing))
    return Finding(
        "bad lines",
        "fault",
        f"{counted(reasons.total(), 'lines')} are bad, more than data.max_bad_ratio allows: {_by_reason(reasons)}",
        remedy(reasons, max_bad_ratio) if reasons else "",
        _examples(listing),
        {"bad": reasons.total(), **{reason.replace(" ", "_"): count for reason, count in reasons.items()}},
    )


class Places:
    """Where pairs come from, for people: the line of the text where that is known, or else the number of the pair."""

    def __init__(self, data: Prepared, lines: bool = True) -> None:
        """Without `lines` pairs are named by number: to find their lines all text is read again."""
        self._data = data
        self._left_out: list[NDArray[np.int64] | None] | None = None if lines else [None] * len(data.corpora)

    def line(self, corpus: int, pair: int) -> int | None:
        """The line, from 1, of a pair, from 0."""
        if self._left_out is None:
            self._left_out = _left_out(self._data)
        numbers = self._left_out[corpus]
        if numbers is None:
            return None
        # As many pairs come before a left-out line as there are lines before it that were not left out.
        pairs_before = numbers - 1 - np.arange(len(numbers))
        return pair + 1 + int(np.searchsorted(pairs_before, pair, side="right"))

    def named(self, corpus: int, pair: int) -> str:
        line = self.line(corpus, pair)
        return f"{self._of(corpus)}{f'pair {pair + 1:,}' if line is None else f'line {line:,}'}"

    def span(self, corpus: int, first: int, last: int) -> str:
        """From the first pair to the last, both included."""
        begin, end = self.line(corpus, first), self.line(corpus, last)
        if begin is None or end is None:
            return f"{self._of(corpus)}pairs {first + 1:,} to {last + 1:,}"
        return f"{self._of(corpus)}lines {begin:,} to {end:,}"

    def quoted(self, corpus: int, pair: int) -> str:
        """Its place and its texts."""
        ids = self._data.corpora[corpus].shards.example(pair)
        source = shortened(self._data.source_tokenizer.decode(ids.source))
        target = shortened(self._data.target_tokenizer.decode(ids.target))
        return f"{self.named(corpus, pair)}: {source} → {target}"

    def _of(self, corpus: int) -> str:
        return f"{self._data.corpora[corpus].name} " if len(self._data.corpora) > 1 else ""


def _left_out(data: Prepared) -> list[NDArray[np.int64] | None]:
    """The lines of each corpus that are no training pairs, in order; None where that cannot be told any more."""
    index, _ = read_index(data.folder)
    bad: dict[str, set[int]] = {}
    for name, number, _ in _listed(data.folder / BAD_LINES):
        bad.setdefault(name, set()).add(number)
    try:
        kept_back = _kept_back(data, index)
    except (AttendoError, OSError):  # the text may be gone, or no longer be what it was
        return [None] * len(index.corpora)
    found: list[NDArray[np.int64] | None] = []
    for corpus, kept in zip(index.corpora, kept_back, strict=True):
        numbers = np.array(sorted(kept | bad.get(_one_line(corpus.name), set())), np.int64)
        found.append(numbers if len(numbers) + corpus.pairs == corpus.lines else None)
    return found


def _kept_back(data: Prepared, index: Index) -> list[set[int]]:
    """The lines of each corpus that became validation pairs: where there are no validation files, these are listed by
    their text alone, and have to be looked for.
    """
    if index.valid.name is not None or not data.valid:
        return [set() for _ in index.corpora]
    sources = {source for source, _ in data.valid}
    training, _ = corpora(DataConfig(**index.settings["data"]), index.settings["seed"])
    return [{row.number for row in corpus.rows() if row.fault is None and row.source in sources} for corpus in training]


def _by_reason(reasons: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())


def _examples(listing: Path) -> tuple[str, ...]:
    return tuple(f"{name} line {n:,}: {reason}" for name, n, reason in islice(_listed(listing), MOST_EXAMPLES))


def _listed(path: Path) -> Iterator[tuple[str, int, str]]:
    """Corpus, line and reason."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            name, number, reason = line.rstrip("\n").split("\t")
            yield name, int(number), reason


def _one_line(name: str) -> str:
    return " ".join(name.split())
