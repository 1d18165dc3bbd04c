"""Attention maps as matplotlib figures for print. Needs the `plot` extra."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from attendo.errors import UsageError
from attendo.explore.attention_map import AttentionMap, truncate
from attendo.explore.figure_style import (
    FAINT,
    INK,
    FontChooser,
    attention_colormap,
    draw_colour_bar,
    plot_style,
    save_map_figure,
)
from attendo.explore.i18n import localise
from attendo.messages import Language

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_CELL, MIN_CELL = 0.26, 0.07  # inches
MAX_LABEL_CELLS = 30  # terminal cells; a Chinese character has two
MAX_VECTOR_CELLS = 40_000  # a picture with more is rasterised: a viewer would need seconds
MAX_MAP_SIDE = 6.0  # inches; a larger map gets smaller cells


@dataclass(frozen=True)
class MapAxisLabels:
    """Labels of rows and columns as keys of the strings `axes`, and their language."""

    rows: str
    columns: str
    language: Language = "en"

    def label(self, key: str) -> str:
        return localise("axes", key, self.language)

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
    with plot_style(letters.families, maps=True):
        picture = save_map_figure(build_maps_figure(maps, axis, columns, letters), image_format, letters.families)
    return picture, letters.warning(language)


def build_maps_figure(maps: Sequence[AttentionMap], axis: MapAxisLabels, columns: int, fonts: FontChooser) -> "Figure":
    """Return the picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    if not maps or any((each.rows, each.columns) != (maps[0].rows, maps[0].columns) for each in maps):
        raise UsageError("attention_maps_not_comparable", count=len(maps))
    layout = _GridLayout.from_maps(maps, columns)
    figure = Figure(figsize=(layout.width, layout.height), facecolor="white")
    top = _scale_max(maps)
    panels = [_draw(figure, each, number, layout, top) for number, each in enumerate(maps)]
    for number, panel in enumerate(panels):
        _label(panel, maps[number], number, layout, fonts)
    _name_axes(panels, axis, layout)
    _draw_scale(figure, panels[0], layout, top, axis.label("weight"))
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
        max_side = MAX_MAP_SIDE if len(maps) == 1 else max(1.8, MAX_MAP_SIDE / columns)
        cell = min(MAX_CELL, max(MIN_CELL, max_side / max(high, wide)))
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
    has_gaps = layout.cell >= 0.12
    panel.pcolormesh(
        attention.weights,
        cmap=attention_colormap(),
        vmin=0,
        vmax=top,
        rasterized=attention.weights.size * layout.columns * layout.rows > MAX_VECTOR_CELLS,
        edgecolors="white" if has_gaps else "face",
        linewidth=0.6 if has_gaps else 0.0,
    )
    panel.set(xlim=(0, wide), ylim=(high, 0))
    panel.spines[:].set(visible=True, color=FAINT, linewidth=0.5)
    panel.tick_params(length=0, pad=2.5)
    panel.xaxis.tick_top()
    return panel


def _label(panel: "Axes", attention: AttentionMap, number: int, layout: _GridLayout, fonts: FontChooser) -> None:
    """Label the first row and column of the grid with tokens, and add a title below each map."""
    row, column = divmod(number, layout.columns)
    rows = [truncate(fonts.escape_missing(token), MAX_LABEL_CELLS) for token in attention.rows] if column == 0 else []
    columns = (
        [truncate(fonts.escape_missing(token), MAX_LABEL_CELLS) for token in attention.columns] if row == 0 else []
    )
    panel.set_yticks([index + 0.5 for index in range(len(rows))], rows, fontsize=layout.font)
    rotated = any(cell_len(label) * 0.6 * layout.font > 72 * layout.cell for label in columns)
    turn = (
        {"rotation": 90}
        if layout.columns > 1 or layout.cell < 0.16
        else {"rotation": 50, "ha": "left", "rotation_mode": "anchor"}
    )
    positions = [index + 0.5 for index in range(len(columns))]
    panel.set_xticks(positions, columns, fontsize=layout.font, **(turn if rotated else {}))
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
