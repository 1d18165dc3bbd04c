"""Which of the languages served a text is written in: by its letters, or by py3langid where languages share them."""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from attendo.errors import UsageError

_MAX_CHARACTERS = 5_000  # that are looked at
_MIN_KANA_SHARE = 0.1  # of Japanese; a Chinese text with a Japanese name in it has less

# The letters of languages that are not written in Latin ones, by ISO 639.
_SCRIPTS: dict[str, str] = {
    "han": "zh zt yue wuu lzh",
    "kana": "ja",
    "hangul": "ko",
    "cyrillic": "ru uk be bg mk sr kk ky mn tg tt ba cv os",
    "arabic": "ar fa ur ps ug sd ckb arz",
    "hebrew": "he iw yi",
    "greek": "el",
    "devanagari": "hi mr ne sa mai bho",
    "bengali": "bn as",
    "gurmukhi": "pa",
    "gujarati": "gu",
    "oriya": "or",
    "tamil": "ta",
    "telugu": "te",
    "kannada": "kn",
    "malayalam": "ml",
    "sinhala": "si",
    "thai": "th",
    "lao": "lo",
    "myanmar": "my",
    "khmer": "km",
    "tibetan": "bo dz",
    "georgian": "ka",
    "armenian": "hy",
    "ethiopic": "am ti",
}
_LANGUAGE_SCRIPTS = {language: script for script, languages in _SCRIPTS.items() for language in languages.split()}
_SECOND_SCRIPTS = {"ja": "han", "ko": "han", "sr": "latin"}  # what a language is written in too
# Four letters behind a language decide, as in sr-Latn.
_SCRIPT_SUBTAGS = {
    "latn": "latin",
    "cyrl": "cyrillic",
    "arab": "arabic",
    "hans": "han",
    "hant": "han",
    "deva": "devanagari",
}

# As Unicode begins the names of letters.
_SCRIPTS_BY_UNICODE_NAME = {
    "cjk": "han",
    "ideographic": "han",
    "hiragana": "kana",
    "katakana": "kana",
    "katakana-hiragana": "kana",
}
_UNSPACED = ("han", "kana", "hangul", "thai", "lao", "myanmar", "khmer", "tibetan")
_LANGID_CODES = {"nb": "no", "iw": "he", "zt": "zh"}  # what py3langid has for a language that it does not know


class LanguagePrediction(NamedTuple):
    """A language that a text may be in, with a confidence from 0 to 1."""

    language: str
    confidence: float


def detect_language(text: str, languages: Sequence[str]) -> list[LanguagePrediction]:
    """Each of the languages with a confidence from 0 to 1, the likeliest first.

    Where nothing can be told, as of digits, of no text, or of letters that none of them has, all have 0, in the order
    given. Of several with the same name before the hyphen (zh-Hans, zh-Hant) the first stands for all. Languages that
    share their letters need the package py3langid; without it they are a `UsageError`, but only for a text in them.
    """
    if not languages:
        raise UsageError("no_language_served")
    shares = _measure_scripts(text[:_MAX_CHARACTERS])
    found = dict.fromkeys(languages, 0.0)
    if shares:
        distinct = {_base_language(language): language for language in reversed(languages)}
        named = [language for language in found if distinct[_base_language(language)] == language]
        found |= {language: shares.get(_language_script(language), 0.0) for language in named}
        main = max(shares, key=lambda script: shares[script])
        rivals = _select_by_script(main, named)
        among = _run_langid(text[:_MAX_CHARACTERS], rivals) if len(rivals) > 1 else dict.fromkeys(rivals, 1.0)
        found |= {language: shares[main] * part for language, part in among.items()}
    return sorted((LanguagePrediction(*each) for each in found.items()), key=lambda each: -each.confidence)


def load_detector(languages: Sequence[str]) -> None:
    """Loads py3langid, which takes a second or more, where some of the languages share their letters."""
    scripts = {_language_script(language) for language in languages} | {*_SECOND_SCRIPTS.values()}
    distinct = [*{_base_language(language): language for language in languages}.values()]
    if any(len(_select_by_script(script, distinct)) > 1 for script in scripts):
        with suppress(UsageError):  # it is not there, which whoever needs it will be told
            _run_langid("a", distinct)


def _base_language(language: str) -> str:
    return language.replace("_", "-").split("-")[0].lower()


def _language_script(language: str) -> str:
    _, *subtags = language.replace("_", "-").lower().split("-")
    written = next((_SCRIPT_SUBTAGS[each] for each in subtags if each in _SCRIPT_SUBTAGS), None)
    return written or _LANGUAGE_SCRIPTS.get(_base_language(language), "latin")


def _select_by_script(script: str, languages: Sequence[str]) -> list[str]:
    """Those it is the first choice of; if there is none, those that are written in it too."""
    first = [language for language in languages if _language_script(language) == script]
    return first or [language for language in languages if _SECOND_SCRIPTS.get(_base_language(language)) == script]


def _measure_scripts(text: str) -> Mapping[str, float]:
    """Of each script, counted in words, or in signs where it has no spaces; empty for a text without letters."""
    counts: Counter[str] = Counter()
    before = ""
    for character in text:
        script = _character_script(character)
        if script is None:  # a mark on the letter before it
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
    """Empty for what is no letter."""
    if unicodedata.category(character)[0] == "M":
        return None
    if not character.isalpha():
        return ""
    plain = unicodedata.normalize("NFKC", character)[0]  # wide Latin is Latin
    name = unicodedata.name(plain, "").split(" ")[0].lower()
    return _SCRIPTS_BY_UNICODE_NAME.get(name, name)


def _run_langid(text: str, languages: Sequence[str]) -> dict[str, float]:
    """Shares that sum to 1, by what py3langid finds likely."""
    try:
        rank = import_module("py3langid").rank
    except ImportError:
        raise UsageError("languages_share_script", languages=", ".join(languages)) from None
    scores = dict(rank(text))
    return _softmax({language: _langid_score(scores, _base_language(language)) for language in languages}, len(text))


def _langid_score(scores: Mapping[str, float], base: str) -> float:
    return float(scores.get(base, scores.get(_LANGID_CODES.get(base, ""), -math.inf)))


def _softmax(scores: Mapping[str, float], size: int) -> dict[str, float]:
    """Log-probabilities as probabilities. They are sums over a text: divided by the root of its size, doubt remains."""
    most = max(scores.values())
    if not math.isfinite(most):
        return {language: 1 / len(scores) for language in scores}
    weights = {language: math.exp((score - most) / math.sqrt(size)) for language, score in scores.items()}
    total = sum(weights.values())
    return {language: weight / total for language, weight in weights.items()}
