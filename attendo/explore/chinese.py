"""What goes wrong in a command that was asked to speak Chinese, by what the library says of it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from attendo.errors import AttendoError
from attendo.explore.chinese_messages import FAULTS, MESSAGES, PARTS
from attendo.explore.language import Language


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Whatever goes wrong inside, for a reason that the user can mend, is told in this language."""
    try:
        yield
    except AttendoError as error:
        if language == "zh":
            error.args = (in_chinese(str(error)), *error.args[1:])
        raise
    except OSError as error:
        if language == "zh" and error.errno in FAULTS:
            error.strerror = FAULTS[error.errno]
        raise


def in_chinese(message: str) -> str:
    """The message as it is, where nobody has put it into Chinese."""
    for english, chinese in MESSAGES.items():
        if found := re.fullmatch(english, message, re.DOTALL):
            return chinese.format(*(_part(each or "") for each in found.groups()))
    return message


def _part(text: str) -> str:
    """What the system says of a file, and words that stand within several messages."""
    system = {os.strerror(number): chinese for number, chinese in FAULTS.items()}
    return {**PARTS, **system}.get(text, text)
