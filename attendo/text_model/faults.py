"""What can be wrong with one text among many; `number` is its place among them, counted from 0."""

import math
from collections.abc import Iterable

from attendo.errors import ModelError, UsageError

_SHOWN = 60  # characters


class TooLongError(UsageError):
    """A text that no model reads whole."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class NotANumberError(ModelError):
    """A network that computed no probability of an answer."""

    def __init__(self, where: str, precision: str, number: int) -> None:
        super().__init__(
            f"{where} has a log-probability that is not a number (precision {precision}): take bf16 or fp32 "
            "(--precision); where that does not help, the weights of the model are not sound"
        )
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
