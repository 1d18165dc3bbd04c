"""One attention matrix with the tokens it speaks of: what every picture in this folder draws."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from attendo.errors import UsageError

CAPTION = "each row: where the model looked while predicting that token"


@dataclass(frozen=True, init=False, eq=False)
class AttentionMap:
    """Attention of one head: `weights[row, column]` between 0 and 1, rows summing to about 1.

    A row is named by the token predicted there. The decoder reads the token before it, so the query's own input
    would be off by one.
    """

    weights: Float64[np.ndarray, "T S"]  # read-only
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    title: str

    def __init__(self, weights: ArrayLike, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
        matrix = np.asarray(weights).astype(np.float64)
        matrix.setflags(write=False)
        _check(matrix, len(rows), len(columns), title)
        object.__setattr__(self, "weights", matrix)
        object.__setattr__(self, "rows", tuple(rows))
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "title", title)


def visible(text: str) -> str:
    """The text as it can be shown anywhere: what would vanish, break a line or steer a terminal gets a sign."""
    if not text.strip(" "):
        return "␣" * len(text)
    return "".join(_visible_character(character) for character in text)


def short_number(weight: float) -> str:
    """At most three characters: `.93`, `1.0`, or nothing for what would round to zero."""
    if weight < 0.005:
        return ""
    return "1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]


def _check(matrix: np.ndarray, rows: int, columns: int, title: str) -> None:
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UsageError("attention_map_not_matrix", title=title, shape=list(matrix.shape))
    if matrix.shape != (rows, columns):
        raise UsageError("attention_map_label_mismatch", title=title, shape=list(matrix.shape), labels=[rows, columns])
    # Half precision may end a hair above 1; a NaN fails both comparisons.
    if not bool(np.all((matrix >= 0) & (matrix <= 1.01))):
        worst = next(value for value in matrix.flat if not 0 <= value <= 1.01)
        raise UsageError("attention_weight_out_of_range", title=title, value=worst)


def _visible_character(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    kind = unicodedata.category(character)
    # Cf stays: joiners shape emoji and several scripts. Of it, only marks that reorder the text around them go.
    if kind in ("Cc", "Cs", "Zl", "Zp") or character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        return "\ufffd"
    # XML admits no noncharacters, and an SVG that holds one does not open.
    return "\ufffd" if code in (0xFFFE, 0xFFFF) else character
