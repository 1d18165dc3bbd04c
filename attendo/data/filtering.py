"""Finds bad lines, counts them by reason, and rejects a corpus with too many."""

from collections import Counter
from io import TextIOBase
from pathlib import Path

from attendo.data.config import DataConfig
from attendo.data.line_filters import FILTER_REASONS
from attendo.errors import DataError, ErrorList, LocalizedText, MessagePart

MIN_RATIO_TOKENS = 20  # tokens; in shorter pairs one long word gives an extreme ratio


class TooManyBadLinesError(DataError):
    """More bad lines than `data.max_bad_ratio` allows."""


def find_text_fault(source: str, target: str) -> str | None:
    """Return the fault visible in the text, or None."""
    return None if source.strip() and target.strip() else "empty"


def find_length_fault(source_tokens: int, target_tokens: int, settings: DataConfig) -> str | None:
    """Return the fault that depends on token counts, or None."""
    short, long = sorted((source_tokens, target_tokens))
    if short == 0:  # white space that the tokenizer drops, or an unknown script
        return "empty"
    if long > settings.max_length:
        return "too long"
    if long > MIN_RATIO_TOKENS and long > settings.max_length_ratio * short:
        return "length ratio"
    return None


_REMEDIES = {"length ratio": "length_ratio_remedy", "too long": "long_lines_remedy"}


def suggest_remedy(reasons: Counter[str], max_bad_ratio: float) -> MessagePart:
    """Return advice for the most frequent reason."""
    (reason, _), *_ = reasons.most_common(1)
    code = _REMEDIES.get(reason, "bad_line_remedy")
    return MessagePart(code, ratio=max_bad_ratio)


class BadLines:
    """The bad lines of one corpus: counted by reason, and listed in a file."""

    def __init__(self, corpus: str, listing: TextIOBase) -> None:
        self.corpus = corpus
        self.lines = 0  # all lines read, good and bad
        self.counts: Counter[str] = Counter()
        self._listing = listing

    def add(self, lines: int, faults: dict[int, str]) -> None:
        """Add a number of lines, and the faults among them by line number."""
        self.lines += lines
        self.counts.update(faults.values())
        for number in sorted(faults):
            self._listing.write(f"{' '.join(self.corpus.split())}\t{number}\t{faults[number]}\n")

    def check(self, max_bad_ratio: float, listing_path: Path, advice: str = "") -> None:
        """Raise an error if there are too many bad lines. `listing_path` is the path shown to the user."""
        found = Counter({reason: n for reason, n in self.counts.items() if reason not in FILTER_REASONS})
        bad = found.total()
        if bad <= max_bad_ratio * self.lines:
            return
        counts = [
            MessagePart("bad_line_count", count=n, reason=LocalizedText(reason)) for reason, n in found.most_common()
        ]
        raise TooManyBadLinesError(
            "too_many_bad_lines",
            corpus=self.corpus,
            bad=bad,
            lines=self.lines,
            share=bad / self.lines,
            reasons=ErrorList(counts),
            listing=listing_path,
            remedy=suggest_remedy(found, max_bad_ratio),
            separator=advice and "; ",
            advice=advice,
        )
