"""The look of learning curves: colours, lines, letters; the same whatever the user's own matplotlib is set to."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from attendo.errors import UsageError

# Told apart by people with any kind of colour vision, each dark enough for white paper (after Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#8f6a00", "#3f9fd8", "#5c4a9c", "#4a4a4a")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))  # runs beyond the eighth begin the colours again, with dashes
INK, FAINT, GRID = "#222222", "#6b6b6b", "#e4e4e4"

SETTINGS = {
    "figure.constrained_layout.hspace": 0.04,
    "figure.constrained_layout.wspace": 0.06,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 6),
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "savefig.dpi": 200,
    "svg.hashsalt": "attendo",  # the same runs give the same bytes
}

# Plain shapes of simplified Chinese come first; if none is there, any font that has the letters does.
CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC"),
    *("Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
)


def look(order: int) -> dict[str, Any]:
    """How the lines of a run are drawn, by its place among the runs."""
    dashes = DASHES[order // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[order % len(COLOURS)], "linestyle": dashes, "linewidth": 1.4}


@contextmanager
def style(text: str) -> Iterator[None]:
    """Draw in our look, with letters for this text."""
    try:
        import matplotlib.style
    except ImportError:
        raise UsageError("plot_needs_matplotlib") from None
    families = fonts(text)
    # Publishers refuse Type 3 letters in a PDF, but the outlines of most Chinese fonts fit no other type.
    letters = {"font.family": families, "pdf.fonttype": 42 if len(families) == 1 else 3}
    with matplotlib.style.context(["default", {**SETTINGS, **letters}]), warnings.catch_warnings():
        # Where no font has a letter there is a box, and nothing that a warning could help with.
        warnings.filterwarnings("ignore", message="Glyph ")
        yield


def fonts(text: str) -> list[str]:
    """matplotlib's own font, then installed ones for the letters it lacks."""
    chosen, missing = _known_fonts(text)
    return _known_fonts(text)[0] if missing and _new_fonts() else chosen


@cache
def _new_fonts() -> int:
    """How many are installed that matplotlib did not know: it keeps a list from the day it was first used."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    new = set(findSystemFonts()) - {font.fname for font in fontManager.ttflist}
    for path in sorted(new):
        with suppress(RuntimeError, OSError, UnicodeError):  # a font that cannot be read is passed over
            fontManager.addfont(path)
    return len(new)


def _known_fonts(text: str) -> tuple[list[str], set[int]]:
    """And the letters that none of them has."""
    from matplotlib.font_manager import findfont, fontManager
    from matplotlib.ft2font import FT2Font

    chosen = ["DejaVu Sans"]
    missing = set(map(ord, text)) - FT2Font(findfont(chosen[0])).get_charmap().keys()
    names = {font.name: font.fname for font in fontManager.ttflist if not font.name.startswith("Last Resort")}
    for name in sorted(names, key=lambda name: (CHINESE.index(name) if name in CHINESE else len(CHINESE), name)):
        if not missing:
            break
        with suppress(RuntimeError, OSError):  # a font that cannot be read is not chosen
            found = missing & FT2Font(names[name]).get_charmap().keys()
            chosen += [name] if found else []
            missing -= found
    return chosen, missing
