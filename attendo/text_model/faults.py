"""What can be wrong with one text among many; `number` is its place among them, counted from 0."""

import math
from collections.abc import Iterable

from attendo.errors import ModelError, UsageError

_SHOWN = 60  # characters


class TooLongError(UsageError):
    """A text that no model reads whole."""

    def __init__(self, code: str, /, number: int = 0, **values: object) -> None:
        super().__init__(code, **values)
        self.number = number


class NotANumberError(ModelError):
    """A network that computed no probability of an answer."""

    def __init__(self, code: str, /, precision: str = "fp32", number: int = 0, **values: object) -> None:
        super().__init__(code, precision=precision, **values)
        self.precision, self.number = precision, number


def is_wrong(log_probabilities: Iterable[float]) -> bool:
    """Whether one of them is not a number."""
    return any(map(math.isnan, log_probabilities))


def behind_place(error: TooLongError | NotANumberError) -> str:
    """What is wrong, without the "text 2 of 3" at the beginning: whoever read the texts knows it by another name."""
    return str(error).partition(" of ")[2].lstrip("0123456789")


def shown(text: str, most: int = _SHOWN) -> str:
    """In quotes, of a long text the beginning."""
    return repr(text if len(text) <= most else f"{text[: most - 3]}...")
