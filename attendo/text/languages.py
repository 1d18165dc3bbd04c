"""Languages of languages.tsv: ISO 639 codes, names, scripts. Tags that clients send are mapped to its codes."""

import re
from collections.abc import Collection
from pathlib import Path


def language_code(tag: str) -> str | None:
    """Return the code of a tag such as en, EN-US, en_GB, eng_Latn or zh-Hans; None if the language is unknown.

    Case, regions and scripts are ignored, except for Chinese: zt, Hant, and TW, HK or MO give zt.
    """
    first, *subtags = _split_tag(tag)
    code = _OTHER_TAGS.get(first, first)
    if code == "zh" and not _TRADITIONAL.isdisjoint(subtags) and "hans" not in subtags:
        return "zt"
    return code if code in _NAMES else None


def match_language(tag: str, codes: Collection[str]) -> str | None:
    """Return the one of `codes` that matches a tag. An equivalent code matches too, such as zt for zh."""
    code = language_code(tag)
    if code is None or code in codes:
        return code
    return next((each for each in _EQUIVALENT_CODES.get(code, ()) if each in codes), None)


def language_name(code: str) -> str:
    """Return the English name, or the code itself if it is unknown."""
    return _NAMES.get(code, code)


def language_script(code: str) -> str:
    """Return the main script of a language; latin if it is unknown."""
    return _SCRIPTS.get(_OTHER_TAGS.get(code, code), "latin")


def _split_tag(tag: str) -> list[str]:
    tag = tag[: _MAX_TAG_LENGTH + 1].strip().lower().replace("_", "-")
    return tag.split("-") if len(tag) <= _MAX_TAG_LENGTH and _TAG.fullmatch(tag) else [""]


_MAX_TAG_LENGTH = 35
_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{1,8})*")
_TRADITIONAL = frozenset(("hant", "tw", "hk", "mo"))
# Codes of languages whose readers understand both.
_EQUIVALENT_CODES = {"zh": ("zt",), "zt": ("zh",), "nb": ("no",), "no": ("nb",)}

# `other codes` of the table are former and alternative codes of a language.
_ROWS = [row.split("\t") for row in Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()[1:]]
_NAMES = {code: name for code, _, name, *_ in _ROWS}
_SCRIPTS = {code: script for code, _, _, script, _ in _ROWS}
_OTHER_TAGS = {tag: code for code, three, _, _, others in _ROWS for tag in (three, *others.split())}
ISO_639_1 = frozenset(code for code in _NAMES if len(code) == 2) - {"zt"}
