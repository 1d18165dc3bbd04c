"""What can go wrong for a reason the user can mend; each kind carries the exit code of the command line."""

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import islice

SHOWN = 80  # characters of a value in a message
_LONGEST = 2000  # characters of a message: enough for a command with two long paths


def shorten(value: object, limit: int = SHOWN) -> str:
    """A value as Python writes it, cut to a short length, for a message."""
    try:
        return cut_text(repr(value[: limit + 1] if isinstance(value, str) else value), limit)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists
        return f"a large {type(value).__name__}"


def cut_text(text: str, limit: int = SHOWN) -> str:
    """A text without quotes, cut to a short length, for a message."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def list_names(names: Iterable[str], most: int = 8, between: str = ", ") -> str:
    """The first names, each cut to a short length; `…` stands for the others."""
    shown = [cut_text(name) for name in islice(names, most + 1)]
    return between.join((*shown[:most], "…") if len(shown) > most else shown)


class AttendoError(Exception):
    """The message is one line that names the thing, the value and the way out."""

    exit_code = 1

    def __init__(self, *parts: object) -> None:
        super().__init__(*(cut_text(part, _LONGEST) if isinstance(part, str) else part for part in parts))


class UsageError(AttendoError, ValueError):
    """A setting, an option or an argument that cannot be meant."""

    exit_code = 2


class DataError(AttendoError):
    """A text or data file that cannot be used."""

    exit_code = 3


class ModelError(AttendoError):
    """A model folder or checkpoint that is missing, damaged or does not fit."""

    exit_code = 4


def require_package(package: str, extra: str, purpose: str) -> None:
    """Raise a `UsageError` that names the pip command if a package is missing. The package is not imported."""
    if find_spec(package) is None:
        raise UsageError(f"{purpose} needs {package}: pip install 'attendo[{extra}]'")
