"""Errors of a command in the language that was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from attendo.errors import AttendoError
from attendo.explore.language import Language
from attendo.messages import SYSTEM_ERRORS


@contextmanager
def speaking(language: Language) -> Iterator[None]:
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
