"""Interface languages, the bilingual strings of strings.toml, and errors in the chosen language."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Literal

from attendo.errors import AttendoError
from attendo.messages import SYSTEM_ERRORS

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@cache
def read_strings() -> dict[str, dict[str, dict[Language, str]]]:
    """Return the strings by table, key and language."""
    return tomllib.loads(Path(__file__).with_name("strings.toml").read_text("utf-8"))


def localise(table: str, key: str, language: Language, *values: object) -> str:
    """Return the string of a key in a language, formatted with the values."""
    return read_strings()[table][key][language].format(*values)


trace_string, report_string = partial(localise, "trace"), partial(localise, "heads")


@contextmanager
def localise_errors(language: Language) -> Iterator[None]:
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
