"""Interface languages, lookup of bilingual strings, and errors in the chosen language."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from attendo.errors import AttendoError
from attendo.messages import SYSTEM_ERRORS

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
StringTable = Mapping[str, tuple[str, str]]  # by their key, in the order of the languages


def localise(strings: StringTable, key: str, language: Language, *values: object) -> str:
    """The words of a key, its gaps filled."""
    return strings[key][LANGUAGES.index(language)].format(*values)


@contextmanager
def localised_errors(language: Language) -> Iterator[None]:
    """An error that is raised inside, and that the user can fix, is in this language."""
    try:
        yield
    except AttendoError as error:
        error.language = language
        raise
    except OSError as error:
        if language == "zh" and error.errno in SYSTEM_ERRORS:
            error.strerror = SYSTEM_ERRORS[error.errno]
        raise
