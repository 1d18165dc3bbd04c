"""One attention matrix with its token labels, and the colour scale of its weights."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from rich.cells import cell_len, set_cell_size

from attendo.errors import UsageError

SHADES = " ░▒▓█"  # of weights, for output without colour
CAPTION = "each row: where the model looked while predicting that token"
# Even steps of OKLab lightness: equal differences of weight look equal.
_LIGHT_STOPS = ("#f2f8fb", "#b8d9ed", "#7abae0", "#409ac9", "#0279a9", "#005983", "#003b5a")
_DARK_STOPS = ("#192529", "#1d4352", "#21637a", "#2a85a4", "#3ca8cd", "#68caee", "#a8e9ff")
# CSS classes name the colour level, so a page can restyle it for a dark background. 51 levels look continuous.
TOP_LEVEL = 50
STRONG_LEVEL = 27  # both inks have equal contrast here, over the two scales together


@dataclass(frozen=True, init=False, eq=False)
class AttentionMap:
    """Attention of one head: `weights[row, column]` between 0 and 1, rows summing to about 1.

    The label of a row is the predicted token. The decoder's input at that row is the previous token.
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


def make_visible(text: str) -> str:
    """Replace invisible characters, line breaks and terminal control characters by visible symbols."""
    if not text.strip(" "):
        return "␣" * len(text)
    return "".join(_make_character_visible(character) for character in text)


def truncate(label: str, width: int) -> str:
    """Shorten a label to `width` terminal cells. A Chinese character has two."""
    return label if cell_len(label) <= width else set_cell_size(label, width - 1) + "…"


def format_weight(weight: float) -> str:
    """Return at most three characters: `.93`, `1.0`, or an empty string below 0.005."""
    if weight < 0.005:
        return ""
    return "1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]


def _check(matrix: np.ndarray, rows: int, columns: int, title: str) -> None:
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UsageError("attention_map_not_matrix", title=title, shape=list(matrix.shape))
    if matrix.shape != (rows, columns):
        raise UsageError("attention_map_label_mismatch", title=title, shape=list(matrix.shape), labels=[rows, columns])
    # Weights in half precision may slightly exceed 1. A NaN fails both comparisons.
    if not bool(np.all((matrix >= 0) & (matrix <= 1.01))):
        worst = next(value for value in matrix.flat if not 0 <= value <= 1.01)
        raise UsageError("attention_weight_out_of_range", title=title, value=worst)


def _make_character_visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    kind = unicodedata.category(character)
    # Keep category Cf, whose joiners shape emoji and several scripts. Replace only its bidirectional controls.
    if kind in ("Cc", "Cs", "Zl", "Zp") or character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        return "\ufffd"
    # XML forbids noncharacters: an SVG with one does not open.
    return "\ufffd" if code in (0xFFFE, 0xFFFF) else character


def colour_level(weight: float) -> int:
    """Return the colour level of a weight, from 0 to `TOP_LEVEL`. The weight is clamped to 0 to 1."""
    return round(min(max(weight, 0.0), 1.0) * TOP_LEVEL)


def is_strong(weight: float) -> bool:
    """Return True if text on this weight's colour uses the ink for strong weights."""
    return colour_level(weight) >= STRONG_LEVEL


def _interpolate_scale(stops: tuple[str, ...]) -> tuple[str, ...]:
    """Return one colour per level, by linear interpolation between the stops."""
    channels = np.array([list(bytes.fromhex(stop[1:])) for stop in stops]).T
    levels = np.linspace(0, len(stops) - 1, TOP_LEVEL + 1)
    colours = np.array([np.interp(levels, range(len(stops)), channel) for channel in channels]).T
    return tuple(f"#{bytes(colour).hex()}" for colour in colours.round().astype(np.uint8))


LIGHT = _interpolate_scale(_LIGHT_STOPS)
DARK = _interpolate_scale(_DARK_STOPS)

# Text on the scale: (ink on weak weights, ink on strong weights).
LIGHT_INKS = ("#0b2733", "#ffffff")
DARK_INKS = ("#eef7fa", "#04161e")
