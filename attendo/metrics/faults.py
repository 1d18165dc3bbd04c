"""Faults of an output: loops, copies, omissions and others, found in the texts and in their log-probabilities.

The detectors are pure functions. The signals are those of Guerreiro et al. (2023) and Raunak et al. (2021); their
limits are in `fault_limits.py`.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from attendo.errors import LocalizedText, cut_line
from attendo.metrics.fault_limits import (
    FaultLimits,
    OutputScore,
    common_run,
    excess_repetition,
    repeated_block,
    split_words,
    word_spans,
)

FaultKind = Literal[
    "empty",
    "copy",
    "loop",
    "detached_from_source",
    "wrong_language",
    "truncated",
    "length_outlier",
    "low_probability",
    "untranslated_segment",
    "number_changed",
]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)  # worst first
HINTS: tuple[FaultKind, ...] = ("number_changed",)  # often right: a number may be written as a word
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_DIGIT = re.compile(r"\d")
_SEPARATOR = re.compile(r"[.,]")
_DEFAULT_LIMITS = FaultLimits()


@dataclass(frozen=True)
class Fault:
    """A fault of an output. `value` is beyond `limit`. `where` is its first and last character, the last excluded."""

    kind: FaultKind
    value: float
    limit: float
    where: tuple[int, int]
    evidence: str

    @property
    def is_hint(self) -> bool:
        """Whether the output may well be right: a hint causes no repair."""
        return self.kind in HINTS

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "value": round(self.value, 4),
            "limit": round(self.limit, 4),
            "where": self.where,
            "evidence": str(self.evidence),
        }


@dataclass(frozen=True)
class CheckedOutput:
    """An output with its source. `score` is None for an output of another system. `truncated`: it has no end."""

    source: str
    text: str
    score: OutputScore | None = None
    truncated: bool = False
    source_words: list[str] = field(init=False, repr=False, compare=False)
    words: list[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source_words", split_words(self.source))
        object.__setattr__(self, "words", split_words(self.text))

    @property
    def whole(self) -> tuple[int, int]:
        """The span of the whole output."""
        return 0, len(self.text)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the characters of the words from `first` to `last`, which is excluded."""
        spans = word_spans(self.text)
        if len(spans) != len(self.words):  # a lower-case letter with several characters, as of İ
            return self.whole
        return spans[first][0], spans[last - 1][1]


def find_faults(output: CheckedOutput, limits: FaultLimits = _DEFAULT_LIMITS) -> tuple[Fault, ...]:
    """Return the faults of an output, worst first."""
    if not output.source_words:  # punctuation or symbols only: any output may be right
        return ()
    if not output.words:
        return (find_empty(output),)
    found = [fault for detector in _DETECTORS if (fault := detector(output, limits)) is not None]
    return tuple(sorted(found, key=lambda fault: KINDS.index(fault.kind))) if found else ()


def find_empty(output: CheckedOutput) -> Fault:
    evidence = LocalizedText("the source has {count} words, the output none", count=len(output.source_words))
    return Fault("empty", 0.0, 1.0, output.whole, evidence)


def find_loop(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """Words that repeat earlier ones, beyond the repetition of the source."""
    value = excess_repetition(output.source_words, output.words)
    if value < limits.loop:
        return None
    first, last = repeated_block(output.words)
    where = output.span(first, last) if last else output.whole
    evidence = LocalizedText(
        "{share:.0%} of the output repeat earlier words: {words}", share=value, words=_quote(output, where)
    )
    return Fault("loop", value, limits.loop, where, evidence)


def find_copy(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """Words in a row that are also in the source: a copy if they are most of the output, else a segment of it."""
    first, last, count = common_run(output.source_words, output.words)
    if count < limits.copied_words:
        return None
    share, where = (last - first) / len(output.words), output.span(first, last)
    if share >= limits.copied_share:
        evidence = LocalizedText("{share:.0%} of the output are copied from the source", share=share)
        return Fault("copy", share, limits.copied_share, where, evidence)
    evidence = LocalizedText(
        "{count} words in a row are those of the source: {words}", count=count, words=_quote(output, where)
    )
    return Fault("untranslated_segment", count, limits.copied_words, where, evidence)


def find_truncation(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    if not output.truncated:
        return None
    tokens = output.score.tokens if output.score else len(output.words)
    evidence = LocalizedText("the output has {tokens} tokens and no end: it reached its limit", tokens=tokens)
    return Fault("truncated", tokens, tokens, output.whole, evidence)


def find_length_outlier(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """More or fewer words than right translations of a source of this length have."""
    low, high = limits.length_range(len(output.source_words))
    words = len(output.words)
    if low <= words <= high:
        return None
    evidence = LocalizedText(
        "{words} words for {source_words} of the source; {low:.1f} to {high:.1f} are usual",
        words=words,
        source_words=len(output.source_words),
        low=max(low, 0.0),
        high=high,
    )
    return Fault("length_outlier", words, low if words < low else high, output.whole, evidence)


def find_wrong_language(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """Characters that are more probable in the source language than in the target language."""
    if not limits.knows_languages:
        return None
    value = limits.language_log_odds(output.text)
    if value >= limits.language:
        return None
    evidence = LocalizedText(
        "the characters are those of the source language: log-odds {value:.2f}, usual from {limit:.2f}",
        value=value,
        limit=limits.language,
    )
    return Fault("wrong_language", value, limits.language, output.whole, evidence)


def find_low_probability(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """A mean log-probability per token that outputs of this length rarely have."""
    if output.score is None:
        return None
    value, limit = output.score.log_probability, limits.least_score(output.score.tokens)
    if value >= limit:
        return None
    evidence = LocalizedText(
        "log-probability {value:.2f} per token; from {limit:.2f} is usual for {tokens} tokens",
        value=value,
        limit=limit,
        tokens=output.score.tokens,
    )
    return Fault("low_probability", value, limit, output.whole, evidence)


def find_detachment(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """An output that is about as probable without its source."""
    if output.score is None or output.score.contrast is None or output.score.contrast >= limits.contrast.low:
        return None
    evidence = LocalizedText(
        "the source adds {value:.2f} to the log-probability per token; from {limit:.2f} is usual",
        value=output.score.contrast,
        limit=limits.contrast.low,
    )
    return Fault("detached_from_source", output.score.contrast, limits.contrast.low, output.whole, evidence)


def find_number_change(output: CheckedOutput, limits: FaultLimits) -> Fault | None:
    """Numbers in digits that only the source or only the output has. This is a hint."""
    if not _DIGIT.search(output.source) and not _DIGIT.search(output.text):  # saves most of the time
        return None
    source, found = _list_numbers(output.source), _list_numbers(output.text)
    if source == found:
        return None
    missing, added = Counter(source) - Counter(found), Counter(found) - Counter(source)
    evidence = LocalizedText(
        "numbers only in the source: {missing}; only in the output: {added}",
        missing=", ".join(map(str, missing.elements())) or "–",
        added=", ".join(map(str, added.elements())) or "–",
    )
    return Fault("number_changed", (missing + added).total(), 1.0, output.whole, evidence)


_DETECTORS: tuple[Callable[[CheckedOutput, FaultLimits], Fault | None], ...] = (
    find_loop,
    find_copy,
    find_truncation,
    find_length_outlier,
    find_wrong_language,
    find_low_probability,
    find_detachment,
    find_number_change,
)


def _list_numbers(text: str) -> list[str]:
    """Return the sorted numbers. 1,000 and 1.000 are the same, and so are digits of other scripts."""
    found = _NUMBER.findall(text)
    return sorted("".join(str(int(digit)) for digit in _SEPARATOR.sub("", each)) for each in found) if found else []


def _quote(output: CheckedOutput, where: tuple[int, int]) -> str:
    return f"“{cut_line(output.text[where[0] : where[1]])}”"
