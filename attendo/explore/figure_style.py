"""Style, fonts and files of matplotlib figures. Needs the `plot` extra."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attendo.errors import UsageError
from attendo.explore.attention_map import LIGHT, make_visible
from attendo.explore.i18n import localise
from attendo.messages import Language

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
INK, FAINT = "#222222", "#6b6b6b"
# Preferred sans-serif fonts for simplified Chinese. If none is installed, any font with the characters is used.
CHINESE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC"),
    *("Hiragino Sans GB", "Microsoft YaHei", "SimHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
)
# The machine that opens an SVG may have other fonts.
_FALLBACK_FONTS = ("Helvetica Neue", "Arial", *CHINESE_FONTS)


def require_matplotlib(command: str) -> None:
    """Raise a `UsageError` if matplotlib is not installed."""
    try:
        import matplotlib.style
    except ImportError:
        raise UsageError("matplotlib_missing", command=command) from None
    assert matplotlib.style


@contextmanager
def plot_style(families: Sequence[str], maps: bool = False) -> Iterator[None]:
    """Apply the style, of maps or of other figures, independent of the user's matplotlib settings."""
    import matplotlib.style

    files = [Path(__file__).with_name(name) for name in ("figures.mplstyle", "maps.mplstyle")]
    # Publishers reject Type 3 fonts in a PDF, but most Chinese fonts can only be embedded as Type 3.
    letters = {"font.family": list(families), "pdf.fonttype": 42 if len(families) == 1 else 3}
    with (
        matplotlib.style.context(["default", *files[: 2 if maps else 1], letters]),
        warnings.catch_warnings(),
    ):
        # A character without a font is drawn as a box, or kept as text in an SVG. The warning has no remedy.
        warnings.filterwarnings("ignore", message="Glyph ")
        yield


def save_figure(figure: "Figure", image_format: str, **options: Any) -> bytes:
    """Return the figure as a file without a date, so that equal figures have equal bytes."""
    file = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(image_format)
    figure.savefig(file, format=image_format, metadata=undated, **options)
    return file.getvalue()


def save_map_figure(figure: "Figure", image_format: str, families: Sequence[str], margin: float = 0.06) -> bytes:
    """Return the figure, cropped to its content, as a file. An SVG names fonts of other systems too."""
    picture = save_figure(figure, image_format, bbox_inches="tight", pad_inches=margin)
    return _add_fallback_fonts(picture, families) if image_format == "svg" else picture


def _add_fallback_fonts(picture: bytes, families: Sequence[str]) -> bytes:
    """Append fonts of other systems to the font families of an SVG."""
    old_families = ", ".join(f"'{name}'" for name in families)
    names = [*families, *(name for name in _FALLBACK_FONTS if name not in families)]
    new_families = ", ".join([*(f"'{name}'" for name in names), "sans-serif"])
    return re.sub(
        rf"font-family: {re.escape(old_families)}".encode(),
        f"font-family: {new_families}".replace("\\", "").encode(),
        picture,
    )


def attention_colormap() -> "ListedColormap":
    """Return one hue from light to dark, distinguishable for colour-blind readers and in black-and-white print."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(LIGHT, "attention")


def draw_colour_bar(figure: "Figure", panel: "Axes", box: tuple[float, float, float, float], name: str) -> "Axes":
    """Draw the colour scale of a panel into a box of the figure."""
    bar = figure.colorbar(panel.collections[0], cax=figure.add_axes(box))
    bar.outline.set(linewidth=0.5, edgecolor=FAINT)
    bar.set_label(name, fontsize=8, color=FAINT)
    bar.ax.tick_params(labelsize=8, length=2, width=0.5)
    if bar.solids is not None:  # matplotlib rasterises a scale with this many colours
        bar.solids.set(rasterized=False, edgecolor="face", linewidth=0.2)
    return bar.ax


@dataclass(frozen=True)
class FontChooser:
    """Installed fonts for some texts, and the characters that none of them has."""

    families: tuple[str, ...]
    missing: str

    @staticmethod
    def for_texts(texts: Sequence[str]) -> "FontChooser":
        from matplotlib.font_manager import findfont
        from matplotlib.ft2font import FT2Font

        text = "".join(dict.fromkeys("".join(map(make_visible, texts))))
        families = tuple(choose_fonts(text))
        code_points = {code for name in families for code in FT2Font(findfont(name)).get_charmap()}
        return FontChooser(
            families, "".join(letter for letter in text if ord(letter) not in code_points and letter != "\ufe0f")
        )

    def escape_missing(self, token: str) -> str:
        """Return the token with \\uXXXX for each character that no font has."""
        return "".join(
            _escape_character(letter) if letter in self.missing else letter for letter in make_visible(token)
        )

    def warning(self, language: Language = "en") -> str:
        """Return a warning about missing characters, or an empty string."""
        if not self.missing:
            return ""
        listing = " ".join(f"{letter} ({_escape_character(letter)})" for letter in self.missing[:10])
        if len(self.missing) > 10:
            listing = localise("fonts", "more", language, listing, len(self.missing) - 10)
        return localise("fonts", "lacking", language, listing)


def choose_language_and_fonts(
    texts: Sequence[str], language: Language, image_format: str
) -> tuple[Language, tuple[str, ...], str]:
    """Return the language of a picture's labels, fonts for them, and a warning.

    If a font for the labels is missing, the language is English. An .svg keeps the language, because its reader may
    have the font.
    """
    letters = FontChooser.for_texts(texts)
    if not letters.missing or image_format == "svg":
        return language, letters.families, ""
    return "en", ("DejaVu Sans",), localise("fonts", "english", language)


def _escape_character(letter: str) -> str:
    return f"\\u{ord(letter):04X}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08X}"


def choose_fonts(text: str) -> list[str]:
    """Return matplotlib's default font, followed by installed fonts for the characters it lacks."""
    chosen, missing = _choose_known_fonts(text)
    return _choose_known_fonts(text)[0] if missing and _register_new_fonts() else chosen


@cache
def _register_new_fonts() -> int:
    """Register newly installed fonts and return their number. matplotlib caches its font list at first use."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    new = set(findSystemFonts()) - {font.fname for font in fontManager.ttflist}
    for path in sorted(new):
        with suppress(RuntimeError, OSError, UnicodeError):  # skip unreadable fonts
            fontManager.addfont(path)
    return len(new)


def _choose_known_fonts(text: str) -> tuple[list[str], set[int]]:
    """Return fonts for this text, and the code points that no font has."""
    from matplotlib.font_manager import findfont, fontManager
    from matplotlib.ft2font import FT2Font

    chosen = ["DejaVu Sans"]
    missing = set(map(ord, text)) - FT2Font(findfont(chosen[0])).get_charmap().keys()
    names = {font.name: font.fname for font in fontManager.ttflist if not font.name.startswith("Last Resort")}
    for name in sorted(
        names, key=lambda name: (CHINESE_FONTS.index(name) if name in CHINESE_FONTS else len(CHINESE_FONTS), name)
    ):
        if not missing:
            break
        with suppress(RuntimeError, OSError):  # skip unreadable fonts
            found = missing & FT2Font(names[name]).get_charmap().keys()
            chosen += [name] if found else []
            missing -= found
    return chosen, missing
