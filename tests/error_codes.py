"""Compares errors by code and values, not by text."""

import re
from collections.abc import Callable
from string import Formatter

from attendo.errors import AttendoError, ErrorList, MessagePart
from attendo.messages import MESSAGES

ErrorCheck = Callable[[object], bool]


def has_code(code: str, **values: object) -> ErrorCheck:
    """A check for `pytest.raises(check=...)`: the error has this code, and at least these values.

    Values are compared as text. If a value is an error, pass another `has_code` for it.
    For a list of errors, one of them must match.
    """

    def check(error: object) -> bool:
        assert isinstance(error, AttendoError | MessagePart), error
        assert error.code == code, f"{error.code}: {error}"
        for name, expected in values.items():
            assert fits(error.values[name], expected), f"{name} is {error.values[name]}"
        return True

    return check


def fits(value: object, expected: object) -> bool:
    if not callable(expected):
        return str(value) == str(expected)
    for each in value.errors if isinstance(value, ErrorList) else [value]:
        try:
            return bool(expected(each))
        except AssertionError:
            continue
    return False


def message(code: str, /, **values: object) -> str:
    """The English text of a message, to compare with the output of a command."""
    return AttendoError(code, **values).text("en")


def fragment(code: str, /, **values: object) -> str:
    """The longest part of a message that is known from these values alone."""
    parts = [""]
    template = re.sub(r"\{option_name:(\{?\w+\}?\w*)\}", r"\1", MESSAGES[code].en)
    for text, name, spec, conversion in Formatter().parse(template):
        parts[-1] += text
        if name in values:
            placeholder = "{0" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            parts[-1] += placeholder.format(values[name])
        elif name is not None:
            parts.append("")
    return max(parts, key=len)
