"""Interface languages, lookup of bilingual strings, and errors in the chosen language."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from attendo.errors import AttendoError
from attendo.messages import SYSTEM_ERRORS

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
StringTable = Mapping[str, tuple[str, str]]  # key: one string per language, in the order of LANGUAGES


def localise(strings: StringTable, key: str, language: Language, *values: object) -> str:
    """Return the string of a key in a language, formatted with the values."""
    return strings[key][LANGUAGES.index(language)].format(*values)


@contextmanager
def localised_errors(language: Language) -> Iterator[None]:
    """Report `AttendoError` and common system errors raised inside in this language."""
    try:
        yield
    except AttendoError as error:
        error.language = language
        raise
    except OSError as error:
        if language == "zh" and error.errno in SYSTEM_ERRORS:
            error.strerror = SYSTEM_ERRORS[error.errno]
        raise
