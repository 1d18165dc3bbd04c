"""Attention maps as matplotlib figures for print, and the choice of fonts. Needs the `plot` extra."""

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from attendo.errors import UsageError
from attendo.explore.attention_map import LIGHT, AttentionMap, make_visible
from attendo.explore.curves_figure import CHINESE_FONTS, FAINT, FORMATS, INK, RC_PARAMS, choose_fonts
from attendo.explore.i18n import Language, localise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

FONT_STRINGS: dict[str, tuple[str, str]] = {
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
# The machine that opens an SVG may have other fonts.
_FALLBACK_FONTS = ("Helvetica Neue", "Arial", *CHINESE_FONTS)
MAX_CELL, MIN_CELL = 0.26, 0.07  # inches
MAX_LABEL_CELLS = 30  # terminal cells; a Chinese character has two
MAX_VECTOR_CELLS = 40_000  # a picture with more is rasterised: a viewer would need seconds
MAX_MAP_SIDE = 6.0  # inches; a larger map gets smaller cells
AXIS_STRINGS: dict[str, tuple[str, str]] = {
    "predicted": ("token being predicted", "正在预测的词元"),
    "source": ("source token", "源文词元"),
    "looked_at": ("source token looked at", "被看的源文词元"),
    "read": ("token read", "已读入的词元"),
    "weight": ("attention weight", "注意力权重"),
}


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
        there = {code for name in families for code in FT2Font(findfont(name)).get_charmap()}
        return FontChooser(
            families, "".join(letter for letter in text if ord(letter) not in there and letter != "\ufe0f")
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
        shown = " ".join(f"{letter} ({_escape_character(letter)})" for letter in self.missing[:10])
        if len(self.missing) > 10:
            shown = localise(FONT_STRINGS, "more", language, shown, len(self.missing) - 10)
        return localise(FONT_STRINGS, "lacking", language, shown)


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
    return "en", ("DejaVu Sans",), localise(FONT_STRINGS, "english", language)


def check_picture_file(path: Path, command: str) -> str:
    """Check that a picture can be drawn to this file, and return its format."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UsageError("unknown_picture_format", path=path)
    require_matplotlib(command)
    return form


def require_matplotlib(command: str) -> None:
    """Raise a `UsageError` if matplotlib is not installed."""
    try:
        import matplotlib.style
    except ImportError:
        raise UsageError("matplotlib_missing", command=command) from None
    assert matplotlib.style


@contextmanager
def paper_style(families: Sequence[str]) -> Iterator[None]:
    """Apply the style for white paper, independent of the user's matplotlib settings."""
    import matplotlib.style

    changes = {
        "axes.grid": False,
        "axes.titleweight": "normal",
        "axes.titlesize": 9.0,
        "font.family": list(families),
        "text.parse_math": False,  # a token may contain $
        "axes.formatter.use_mathtext": False,
        "svg.fonttype": "none",
        "savefig.dpi": 300,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.edgecolor": FAINT,
        # Publishers reject Type 3 fonts in a PDF, but most Chinese fonts can only be embedded as Type 3.
        "pdf.fonttype": 42 if len(families) == 1 else 3,
    }
    with matplotlib.style.context(["default", {**RC_PARAMS, **changes}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")  # only an SVG keeps characters without an installed font
        yield


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


def add_fallback_fonts(picture: bytes, families: Sequence[str]) -> bytes:
    """Append fonts of other systems to the font families of an SVG."""
    quoted = ", ".join(f"'{name}'" for name in families)
    named = [*families, *(name for name in _FALLBACK_FONTS if name not in families)]
    wanted = ", ".join([*(f"'{name}'" for name in named), "sans-serif"])
    return re.sub(
        rf"font-family: {re.escape(quoted)}".encode(), f"font-family: {wanted}".replace("\\", "").encode(), picture
    )


def _escape_character(letter: str) -> str:
    return f"\\u{ord(letter):04X}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08X}"


@dataclass(frozen=True)
class MapAxisLabels:
    """Labels of rows and columns as keys of `AXIS_STRINGS`, and their language."""

    rows: str
    columns: str
    language: Language = "en"

    def label(self, key: str) -> str:
        return localise(AXIS_STRINGS, key, self.language)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(self.label, (self.rows, self.columns, "weight")))


def draw_maps(
    maps: Sequence[AttentionMap], axis: MapAxisLabels, columns: int, image_format: str, language: Language = "en"
) -> tuple[bytes, str]:
    """Return the picture as a png, svg or pdf file, and a warning if it shows codes for missing characters.

    All maps must have the same tokens. `columns` is the number of maps per row. `language` is that of the warning.
    """
    tokens = [*maps[0].rows, *maps[0].columns] if maps else []
    letters = FontChooser.for_texts([*tokens, *(each.title for each in maps), *axis.labels])
    if image_format == "svg":  # an SVG keeps text as text; its reader may have a font
        letters = FontChooser(letters.families, "")
    with paper_style(letters.families):
        file = io.BytesIO()
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(image_format)
        figure = build_maps_figure(maps, axis, columns, letters)
        figure.savefig(file, format=image_format, metadata=undated, bbox_inches="tight", pad_inches=0.06)
    picture = file.getvalue()
    return (add_fallback_fonts(picture, letters.families) if image_format == "svg" else picture), letters.warning(
        language
    )


def build_maps_figure(maps: Sequence[AttentionMap], axis: MapAxisLabels, columns: int, fonts: FontChooser) -> "Figure":
    """Return the picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    if not maps or any((each.rows, each.columns) != (maps[0].rows, maps[0].columns) for each in maps):
        raise UsageError("attention_maps_not_comparable", count=len(maps))
    layout = _GridLayout.from_maps(maps, columns)
    figure = Figure(figsize=(layout.width, layout.height), facecolor="white")
    top = _scale_max(maps)
    drawn = [_draw(figure, each, number, layout, top) for number, each in enumerate(maps)]
    for number, panel in enumerate(drawn):
        _label(panel, maps[number], number, layout, fonts)
    _name_axes(drawn, axis, layout)
    _draw_scale(figure, drawn[0], layout, top, axis.label("weight"))
    return figure


@dataclass(frozen=True)
class _GridLayout:
    """Layout of the maps, in inches."""

    columns: int
    rows: int
    cell: float
    map_width: float  # of one map
    map_height: float
    gap: float
    title: float

    @staticmethod
    def from_maps(maps: Sequence[AttentionMap], columns: int) -> "_GridLayout":
        high, wide = maps[0].weights.shape
        columns = min(columns, len(maps))
        rows = math.ceil(len(maps) / columns)
        room = MAX_MAP_SIDE if len(maps) == 1 else max(1.8, MAX_MAP_SIDE / columns)
        cell = min(MAX_CELL, max(MIN_CELL, room / max(high, wide)))
        return _GridLayout(columns, rows, cell, wide * cell, high * cell, 0.14, 0.0 if len(maps) == 1 else 0.22)

    @property
    def width(self) -> float:
        return self.columns * (self.map_width + self.gap) + 0.5

    @property
    def height(self) -> float:
        return self.rows * (self.map_height + self.gap + self.title)

    @property
    def font(self) -> float:
        """Font size in points. A line of text fits into a cell."""
        return min(9.0, 72 * self.cell * 0.78)

    def box(self, number: int) -> tuple[float, float, float, float]:
        row, column = divmod(number, self.columns)
        left = column * (self.map_width + self.gap)
        bottom = self.height - row * (self.map_height + self.gap + self.title) - self.map_height
        return left / self.width, bottom / self.height, self.map_width / self.width, self.map_height / self.height


def _draw(figure: "Figure", attention: AttentionMap, number: int, layout: _GridLayout, top: float) -> "Axes":
    panel = figure.add_axes(layout.box(number))
    high, wide = attention.weights.shape
    apart = layout.cell >= 0.12
    panel.pcolormesh(
        attention.weights,
        cmap=attention_colormap(),
        vmin=0,
        vmax=top,
        rasterized=attention.weights.size * layout.columns * layout.rows > MAX_VECTOR_CELLS,
        edgecolors="white" if apart else "face",
        linewidth=0.6 if apart else 0.0,
    )
    panel.set(xlim=(0, wide), ylim=(high, 0))
    for side in ("top", "right", "bottom", "left"):
        panel.spines[side].set(visible=True, color=FAINT, linewidth=0.5)
    panel.tick_params(length=0, pad=2.5)
    panel.xaxis.tick_top()
    return panel


def _label(panel: "Axes", attention: AttentionMap, number: int, layout: _GridLayout, fonts: FontChooser) -> None:
    """Label the first row and column of the grid with tokens, and add a title below each map."""
    row, column = divmod(number, layout.columns)
    rows = [_truncate(fonts.escape_missing(token)) for token in attention.rows] if column == 0 else []
    columns = [_truncate(fonts.escape_missing(token)) for token in attention.columns] if row == 0 else []
    panel.set_yticks([place + 0.5 for place in range(len(rows))], rows, fontsize=layout.font)
    turned = any(cell_len(label) * 0.6 * layout.font > 72 * layout.cell for label in columns)
    turn = (
        {"rotation": 90}
        if layout.columns > 1 or layout.cell < 0.16
        else {"rotation": 50, "ha": "left", "rotation_mode": "anchor"}
    )
    places = [place + 0.5 for place in range(len(columns))]
    panel.set_xticks(places, columns, fontsize=layout.font, **(turn if turned else {}))
    if layout.rows * layout.columns > 1:
        panel.text(
            0,
            -2.5 / 72 / layout.map_height,
            fonts.escape_missing(attention.title),
            transform=panel.transAxes,
            va="top",
            fontsize=7.5,
            color=INK,
        )


def _name_axes(drawn: Sequence["Axes"], axis: MapAxisLabels, layout: _GridLayout) -> None:
    for column in range(min(layout.columns, len(drawn))):
        drawn[column].xaxis.set_label_position("top")
        drawn[column].set_xlabel(axis.label(axis.columns), color=FAINT, labelpad=5, fontsize=8)
    for row in range(layout.rows):
        drawn[row * layout.columns].set_ylabel(axis.label(axis.rows), color=FAINT, labelpad=5, fontsize=8)


def _draw_scale(figure: "Figure", panel: "Axes", layout: _GridLayout, top: float, name: str) -> None:
    """Draw the colour scale to the right of the first row of maps."""
    _, bottom, _, high = layout.box(0)
    left = layout.columns * (layout.map_width + layout.gap) / layout.width + 0.04 / layout.width
    tall = min(1.0, 2.2 / layout.map_height)
    box = (left, bottom + high * (1 - tall), 0.11 / layout.width, high * tall)
    draw_colour_bar(figure, panel, box, name).set_ylim(0, top)


def _scale_max(maps: Sequence[AttentionMap]) -> float:
    """Return the end of the colour scale: 1, or less if no weight exceeds 0.8."""
    largest = max(float(each.weights.max()) for each in maps)
    return 1.0 if largest > 0.8 else math.ceil(largest * 20 + 1e-9) / 20 or 0.05


def _truncate(label: str) -> str:
    return label if cell_len(label) <= MAX_LABEL_CELLS else set_cell_size(label, MAX_LABEL_CELLS - 1) + "…"
