"""Language detection among the served languages, by script, or by py3langid for languages that share one."""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from attendo.errors import UsageError
from attendo.text.languages import language_script

_MAX_CHARACTERS = 5_000  # used for detection
_MIN_KANA_SHARE = 0.1  # of a Japanese text; a Chinese text with a Japanese name has less

_SECOND_SCRIPTS = {"ja": "han", "ko": "han", "sr": "latin"}  # second script of a language
# ISO 15924 subtags override the script of a language, as in sr-Latn.
_SCRIPT_SUBTAGS = {
    "latn": "latin",
    "cyrl": "cyrillic",
    "arab": "arabic",
    "hans": "han",
    "hant": "han",
    "deva": "devanagari",
}

# First word of the Unicode name of a letter.
_SCRIPTS_BY_UNICODE_NAME = {
    "cjk": "han",
    "ideographic": "han",
    "hiragana": "kana",
    "katakana": "kana",
    "katakana-hiragana": "kana",
}
_UNSPACED = ("han", "kana", "hangul", "thai", "lao", "myanmar", "khmer", "tibetan")
_LANGID_CODES = {"nb": "no", "iw": "he", "zt": "zh"}  # py3langid's codes for languages that it lacks


class LanguagePrediction(NamedTuple):
    """A possible language of a text, with a confidence from 0 to 1."""

    language: str
    confidence: float


def detect_language(text: str, languages: Sequence[str]) -> list[LanguagePrediction]:
    """Return each of the languages with its confidence, the likeliest first.

    If the text has no letters, or only letters of other scripts, all confidences are 0, in the order given. Of
    languages with the same base (zh-Hans, zh-Hant) only the first is scored. Languages that share a script need the
    package py3langid; without it a text in that script raises `UsageError`.
    """
    if not languages:
        raise UsageError("no_language_served")
    shares = _measure_scripts(text[:_MAX_CHARACTERS])
    found = dict.fromkeys(languages, 0.0)
    if shares:
        distinct = {_base_language(language): language for language in reversed(languages)}
        named = [language for language in found if distinct[_base_language(language)] == language]
        found |= {language: shares.get(_main_script(language), 0.0) for language in named}
        main = max(shares, key=lambda script: shares[script])
        rivals = _select_by_script(main, named)
        among = _run_langid(text[:_MAX_CHARACTERS], rivals) if len(rivals) > 1 else dict.fromkeys(rivals, 1.0)
        found |= {language: shares[main] * part for language, part in among.items()}
    return sorted((LanguagePrediction(*each) for each in found.items()), key=lambda each: -each.confidence)


def load_detector(languages: Sequence[str]) -> None:
    """Load py3langid, which takes a second or more, if some of the languages share a script."""
    scripts = {_main_script(language) for language in languages} | {*_SECOND_SCRIPTS.values()}
    distinct = [*{_base_language(language): language for language in languages}.values()]
    if any(len(_select_by_script(script, distinct)) > 1 for script in scripts):
        with suppress(UsageError):  # not installed: a request that needs it gets the error
            _run_langid("a", distinct)


def _base_language(language: str) -> str:
    return language.replace("_", "-").split("-")[0].lower()


def _main_script(language: str) -> str:
    _, *subtags = language.replace("_", "-").lower().split("-")
    script = next((_SCRIPT_SUBTAGS[each] for each in subtags if each in _SCRIPT_SUBTAGS), None)
    return script or language_script(_base_language(language))


def _select_by_script(script: str, languages: Sequence[str]) -> list[str]:
    """Return the languages with this main script or, if none has it, those with this second script."""
    first = [language for language in languages if _main_script(language) == script]
    return first or [language for language in languages if _SECOND_SCRIPTS.get(_base_language(language)) == script]


def _measure_scripts(text: str) -> Mapping[str, float]:
    """Return the share of each script, in words, or in characters if it has no spaces; empty without letters."""
    counts: Counter[str] = Counter()
    before = ""
    for character in text:
        script = _character_script(character)
        if script is None:  # a combining mark
            continue
        if script and (script != before or script in _UNSPACED):
            counts[script] += 1
        before = script
    kana, han = counts.pop("kana", 0), counts.pop("han", 0)
    counts["kana" if kana and kana >= _MIN_KANA_SHARE * (kana + han) else "han"] = kana + han
    total = counts.total()
    return {script: count / total for script, count in counts.items() if count}


@lru_cache(maxsize=8192)
def _character_script(character: str) -> str | None:
    """Return the script of a letter, None for a combining mark, or '' for any other character."""
    if unicodedata.category(character)[0] == "M":
        return None
    if not character.isalpha():
        return ""
    plain = unicodedata.normalize("NFKC", character)[0]  # full-width Latin letters count as Latin
    name = unicodedata.name(plain, "").split(" ")[0].lower()
    return _SCRIPTS_BY_UNICODE_NAME.get(name, name)


def _run_langid(text: str, languages: Sequence[str]) -> dict[str, float]:
    """Return the probabilities of these languages by py3langid; they sum to 1."""
    try:
        rank = import_module("py3langid").rank
    except ImportError:
        raise UsageError("languages_share_script", languages=", ".join(languages)) from None
    scores = dict(rank(text))
    return _softmax({language: _langid_score(scores, _base_language(language)) for language in languages}, len(text))


def _langid_score(scores: Mapping[str, float], base: str) -> float:
    return float(scores.get(base, scores.get(_LANGID_CODES.get(base, ""), -math.inf)))


def _softmax(scores: Mapping[str, float], size: int) -> dict[str, float]:
    """Softmax with the square root of the text length as temperature; plain sums over a text are overconfident."""
    most = max(scores.values())
    if not math.isfinite(most):
        return {language: 1 / len(scores) for language in scores}
    weights = {language: math.exp((score - most) / math.sqrt(size)) for language, score in scores.items()}
    total = sum(weights.values())
    return {language: weight / total for language, weight in weights.items()}
