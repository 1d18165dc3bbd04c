"""The look of pictures of attention, and letters for whatever their tokens are written in."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attendo.errors import UsageError
from attendo.explore.attention_map import visible
from attendo.explore.curves_style import CHINESE, FAINT, INK, SETTINGS, fonts
from attendo.explore.heatmap_colours import LIGHT
from attendo.explore.language import Language, said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")

WORDS: dict[str, tuple[str, str]] = {
    "lacking": (
        "no font that is installed here has {0}: written as codes in the picture; install one that has them (Debian, "
        "Ubuntu: apt install fonts-noto-cjk fonts-noto-core), or write an .svg, which keeps text as text",
        "本机没有字体包含 {0}：图中以编码代替；请安装含有它们的字体（Debian、Ubuntu：apt install fonts-noto-cjk "
        "fonts-noto-core），或写成 .svg，其中的文字仍是文字",
    ),
    "more": ("{0} and {1} more", "{0} 等，另有 {1} 个"),
    "english": (
        "",
        "本机没有中文字体：图中的说明改用英文；请安装中文字体（Debian、Ubuntu：apt install fonts-noto-cjk），"
        "或写成 .svg",
    ),
}

# Where an SVG is opened there may be other fonts than here.
_ELSEWHERE = ("Helvetica Neue", "Arial", *CHINESE)


@dataclass(frozen=True)
class Letters:
    """Fonts that are installed here, and the characters that none of them has."""

    families: tuple[str, ...]
    lacking: str

    @staticmethod
    def of(texts: Sequence[str]) -> "Letters":
        from matplotlib.font_manager import findfont
        from matplotlib.ft2font import FT2Font

        text = "".join(dict.fromkeys("".join(map(visible, texts))))
        families = tuple(fonts(text))
        there = {code for name in families for code in FT2Font(findfont(name)).get_charmap()}
        return Letters(families, "".join(letter for letter in text if ord(letter) not in there and letter != "\ufe0f"))

    def written(self, token: str) -> str:
        """The token as these fonts can show it: \\uXXXX for what would be a box."""
        return "".join(_code(letter) if letter in self.lacking else letter for letter in visible(token))

    def warning(self, language: Language = "en") -> str:
        """What to tell where something is lacking; nothing otherwise."""
        if not self.lacking:
            return ""
        shown = " ".join(f"{letter} ({_code(letter)})" for letter in self.lacking[:10])
        if len(self.lacking) > 10:
            shown = said(WORDS, "more", language, shown, len(self.lacking) - 10)
        return said(WORDS, "lacking", language, shown)


def lettered(texts: Sequence[str], language: Language, form: str) -> tuple[Language, tuple[str, ...], str]:
    """The language that a picture's own words can be written in here, fonts for them, and what there is to warn of.

    A reader of an .svg may have a font that is not installed here.
    """
    letters = Letters.of(texts)
    if not letters.lacking or form == "svg":
        return language, letters.families, ""
    return "en", ("DejaVu Sans",), said(WORDS, "english", language)


def require_matplotlib(what: str) -> None:
    """A `UsageError` where it is not installed."""
    try:
        import matplotlib.style
    except ImportError:
        raise UsageError("matplotlib_missing", command=what) from None
    assert matplotlib.style


@contextmanager
def paper(families: Sequence[str]) -> Iterator[None]:
    """Draw for white paper, whatever the user's own matplotlib is set to."""
    import matplotlib.style

    changes = {
        "axes.grid": False,
        "axes.titleweight": "normal",
        "axes.titlesize": 9.0,
        "font.family": list(families),
        "text.parse_math": False,  # a token may hold $
        "axes.formatter.use_mathtext": False,
        "svg.fonttype": "none",
        "savefig.dpi": 300,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.edgecolor": FAINT,
        # Publishers refuse Type 3 letters in a PDF, but the outlines of most Chinese fonts fit no other type.
        "pdf.fonttype": 42 if len(families) == 1 else 3,
    }
    with matplotlib.style.context(["default", {**SETTINGS, **changes}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # only an SVG has letters that no font here has
        yield


def colours() -> "ListedColormap":
    """One hue from light to dark, told apart by people with any kind of colour vision, and in print without colour."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(LIGHT, "attention")


def colour_bar(figure: "Figure", panel: "Axes", box: tuple[float, float, float, float], name: str) -> "Axes":
    """The scale of a panel's colours, drawn into a box of the figure."""
    bar = figure.colorbar(panel.collections[0], cax=figure.add_axes(box))
    bar.outline.set(linewidth=0.5, edgecolor=FAINT)
    bar.set_label(name, fontsize=8, color=FAINT)
    bar.ax.tick_params(labelsize=8, length=2, width=0.5)
    if bar.solids is not None:  # of so many colours it would be an image
        bar.solids.set(rasterized=False, edgecolor="face", linewidth=0.2)
    return bar.ax


def with_more_fonts(picture: bytes, families: Sequence[str]) -> bytes:
    """An SVG that names fonts of other systems too, behind those that it was laid out with."""
    quoted = ", ".join(f"'{name}'" for name in families)
    named = [*families, *(name for name in _ELSEWHERE if name not in families)]
    wanted = ", ".join([*(f"'{name}'" for name in named), "sans-serif"])
    return re.sub(
        rf"font-family: {re.escape(quoted)}".encode(), f"font-family: {wanted}".replace("\\", "").encode(), picture
    )


def _code(letter: str) -> str:
    return f"\\u{ord(letter):04X}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08X}"
