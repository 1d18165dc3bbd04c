"""The languages that explanations, pictures and messages come in."""

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

Words = Mapping[str, tuple[str, str]]  # by their key, in the order of the languages


def said(words: Words, key: str, language: Language, *values: object) -> str:
    """The words of a key, its gaps filled."""
    return words[key][LANGUAGES.index(language)].format(*values)
