"""Filters of training pairs that look at the text: copies of the source, and other languages.

A filtered pair is not a bad line: it is counted and listed like one, but `data.max_bad_ratio` does not limit it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from attendo.data.config import DataConfig
from attendo.errors import UsageError, require_package

COPY, DUPLICATE, OTHER_LANGUAGE = "copied source", "duplicate", "other language"
FILTER_REASONS = frozenset({COPY, DUPLICATE, OTHER_LANGUAGE})

# Difference of log-probabilities from which another language is certain. With English and German lines of Tatoeba, 0.1%
# of 20,000 in the right language are filtered, and 99.8% of 4,000 in the other language.
MIN_LOG_ODDS = 5.0
_CODES = {"nb": "no", "iw": "he", "zt": "zh"}  # py3langid's codes for languages that it lacks


class PairFilter:
    """The filters that the settings ask for."""

    def __init__(self, settings: DataConfig) -> None:
        self._drops_copies = settings.drop_copies
        self._languages = None if settings.languages is None else tuple(map(find_language, settings.languages))

    def find_reason(self, source: str, target: str) -> str | None:
        """Return why a pair is filtered, or None."""
        if self._drops_copies and source.strip() == target.strip():
            return COPY
        if self._languages is not None:
            sides = zip((source, target), self._languages, strict=True)
            if any(is_other_language(text, language) for text, language in sides):
                return OTHER_LANGUAGE
        return None


def is_other_language(text: str, language: str) -> bool:
    """Whether another language is clearly more probable. `language` is a code of py3langid."""
    scores = dict(_load_rank()(text))
    return bool(max(scores.values()) - scores[language] >= MIN_LOG_ODDS)


def find_language(language: str) -> str:
    """Return the code of py3langid of a language such as de or zh-Hans. Raise `UsageError` if it knows no such one."""
    base = language.replace("_", "-").split("-")[0].lower()
    known = {code for code, _ in _load_rank()("a")}
    code = _CODES.get(base, base)
    if code not in known:
        raise UsageError("language_not_identified", language=language, known=", ".join(sorted(known)))
    return code


@cache
def _load_rank() -> Callable[[str], list[tuple[str, Any]]]:
    require_package("py3langid", "detect", "data.languages")
    rank: Callable[[str], list[tuple[str, Any]]] = import_module("py3langid").rank
    return rank
