"""The colour scale of attention: one hue, lightness in even steps, one version a background."""

from itertools import pairwise

# Even steps of OKLab lightness, so that equal differences of weight look equal.
_LIGHT_STOPS = ("#f2f8fb", "#b8d9ed", "#7abae0", "#409ac9", "#0279a9", "#005983", "#003b5a")
_DARK_STOPS = ("#192529", "#1d4352", "#21637a", "#2a85a4", "#3ca8cd", "#68caee", "#a8e9ff")

# Colours are named by level, so that a page can restyle them for a dark background; 51 steps look continuous.
TOP_LEVEL = 50
STRONG_LEVEL = 27  # where the two inks stand out equally, over both scales together


def level(weight: float) -> int:
    """Where a weight from 0 to 1 stands on the scale, from 0 to `TOP_LEVEL`."""
    return round(min(max(weight, 0.0), 1.0) * TOP_LEVEL)


def is_strong(weight: float) -> bool:
    """Whether text on this weight's colour takes the ink of the far end of the scale."""
    return level(weight) >= STRONG_LEVEL


def _scale(stops: tuple[str, ...]) -> tuple[str, ...]:
    """One colour a level, straight lines between the stops."""
    segments = list(pairwise(stops))
    colours = []
    for step in range(TOP_LEVEL + 1):
        place = step / TOP_LEVEL * len(segments)
        segment = min(int(place), len(segments) - 1)
        colours.append(_between(*segments[segment], place - segment))
    return tuple(colours)


def _between(low: str, high: str, share: float) -> str:
    pairs = [(int(low[at : at + 2], 16), int(high[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(start + (end - start) * share):02x}" for start, end in pairs)


LIGHT = _scale(_LIGHT_STOPS)
DARK = _scale(_DARK_STOPS)

# Text on the scale: (ink on weak weights, ink on strong weights).
LIGHT_INKS = ("#0b2733", "#ffffff")
DARK_INKS = ("#eef7fa", "#04161e")
