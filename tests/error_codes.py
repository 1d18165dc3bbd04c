"""Compares errors by code and values, whatever their texts say."""

from collections.abc import Callable
from string import Formatter

from attendo.errors import AttendoError, ErrorList, MessagePart
from attendo.messages import MESSAGES

ErrorCheck = Callable[[object], bool]


def has_code(code: str, **values: object) -> ErrorCheck:
    """For `pytest.raises(check=...)`: the error has this code, and these values among others.

    Values are compared as text. A value that is an error itself is compared with another `has_code`,
    and a list of errors holds one that fits.
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
    """The English text of a message, for what a command prints."""
    return AttendoError(code, **values).text("en")


def fragment(code: str, /, **values: object) -> str:
    """The longest part of a message that these values complete, for text with other values in it."""
    parts = [""]
    for text, name, spec, conversion in Formatter().parse(MESSAGES[code].en):
        parts[-1] += text
        if name in values:
            template = "{0" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            parts[-1] += template.format(values[name])
        elif name is not None:
            parts.append("")
    return max(parts, key=len)
