"""Input files and figure of `attendo heads`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attendo.data.corpus_files import read_parallel_lines
from attendo.data.pharaoh import parse_links
from attendo.errors import DataError, MessagePart, UsageError
from attendo.explore.attention_map import LIGHT_INKS, is_strong
from attendo.explore.figure_style import (
    FAINT,
    INK,
    attention_colormap,
    choose_language_and_fonts,
    draw_colour_bar,
    plot_style,
    save_map_figure,
)
from attendo.explore.gold_alignment import GoldLinks
from attendo.explore.head_stats import AttentionType, HeadOrder, HeadReport, Sentence
from attendo.explore.i18n import report_string
from attendo.messages import Language

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = (0.5, 0.34)  # inches; fits a number of four characters
MAX_HEADS_IN_ONE_ROW = 8  # with more heads, there is one grid per row
MARK_COLOUR = "#d55e00"  # distinct from blue for colour-blind readers
GAP, LEFT_MARGIN, HEADER_HEIGHT = 0.25, 0.4, 0.72  # inches: between grids, left of them, above them
NOTE_WIDTH = 1.55  # inches; width of the text below a grid
ATTENTION_TYPES: tuple[AttentionType, ...] = ("encoder", "decoder", "cross")
LinkUnit = Literal["words", "tokens"]


def draw_heads(report: HeadReport, order: HeadOrder, image_format: str, language: Language = "en") -> tuple[bytes, str]:
    """Return the picture as a png, svg or pdf file, and a font warning. Colour shows the statistic of `order`."""
    keys = ("head", "layer", "framed", *ATTENTION_TYPES, f"scale_{report.sort_field(order)}")
    language, families, warning = choose_language_and_fonts(
        [report_string(key, language) for key in keys], language, image_format
    )
    with plot_style(families, maps=True):
        figure = build_heads_figure(report, order, language)
        return save_map_figure(figure, image_format, families, margin=0.08), warning


def build_heads_figure(report: HeadReport, order: HeadOrder, language: Language = "en") -> "Figure":
    """Return the picture as a matplotlib figure."""
    from matplotlib.figure import Figure

    grids = _grids(report, report.sort_field(order))
    heads, layers = (max(each.shape[axis] for each in grids.values()) for axis in (1, 0))
    across = len(grids) if heads <= MAX_HEADS_IN_ONE_ROW else 1
    wide, high = max(heads * CELL[0], NOTE_WIDTH), layers * CELL[1]
    size = across * (wide + GAP + LEFT_MARGIN) + 0.7, -(-len(grids) // across) * (high + HEADER_HEIGHT)
    figure = Figure(figsize=size, facecolor="white")
    top = _scale_max(report.sort_field(order), grids)
    for number, (kind, grid) in enumerate(grids.items()):
        row, column = divmod(number, across)
        left, end = (
            LEFT_MARGIN + column * (wide + GAP + LEFT_MARGIN),
            size[1] - row * (high + HEADER_HEIGHT) - HEADER_HEIGHT,
        )
        own = grid.shape[0] * CELL[1]
        box = (left / size[0], (end - own) / size[1], grid.shape[1] * CELL[0] / size[0], own / size[1])
        panel = figure.add_axes(box)
        _draw(panel, grid, top)
        panel.set_xlabel(report_string("head", language), color=FAINT, fontsize=8, labelpad=3)
        panel.set_ylabel(report_string("layer", language), color=FAINT, fontsize=8, labelpad=3)
        panel.set_title(report_string(kind, language), fontsize=9, fontweight="bold", color=INK, pad=5)
        if kind == "cross":
            _mark_best_head(panel, report, report_string("framed", language))
    box = ((size[0] - 0.62) / size[0], (size[1] - HEADER_HEIGHT - high) / size[1], 0.11 / size[0], high / size[1])
    draw_colour_bar(figure, figure.axes[0], box, report_string(f"scale_{report.sort_field(order)}", language))
    return figure


def _grids(report: HeadReport, name: str) -> dict[AttentionType, np.ndarray]:
    """Return one [layers, heads] array per attention type that has this statistic."""
    found: dict[AttentionType, np.ndarray] = {}
    for kind in ATTENTION_TYPES:
        heads = [each for each in report.heads if each.attention_type == kind and getattr(each, name) is not None]
        if heads:
            shape = 1 + max(each.layer for each in heads), 1 + max(each.head for each in heads)
            found[kind] = np.array([getattr(each, name) for each in heads]).reshape(shape)
    return found


def _scale_max(name: str, grids: dict[AttentionType, np.ndarray]) -> float:
    """Return 1 for shares, so pictures are comparable, and the largest value for entropy and distance."""
    if name in ("entropy", "distance"):
        return max(float(each.max()) for each in grids.values()) or 1.0
    return 1.0


def _draw(panel: "Axes", grid: np.ndarray, top: float) -> None:
    layers, heads = grid.shape
    panel.pcolormesh(grid, cmap=attention_colormap(), vmin=0, vmax=top, edgecolors="white", linewidth=1.2)
    panel.set(xlim=(0, heads), ylim=(layers, 0))
    panel.set_xticks([index + 0.5 for index in range(heads)], list(map(str, range(heads))))
    panel.set_yticks([index + 0.5 for index in range(layers)], list(map(str, range(layers))))
    panel.xaxis.tick_top()
    panel.xaxis.set_label_position("top")
    panel.tick_params(length=0, pad=2.5, labelsize=8)
    panel.spines[:].set_visible(False)
    for (layer, head), value in np.ndenumerate(grid):
        ink = LIGHT_INKS[is_strong(value / top)]
        panel.text(head + 0.5, layer + 0.5, _format_value(value), ha="center", va="center", fontsize=8, color=ink)


def _mark_best_head(panel: "Axes", report: HeadReport, label: str) -> None:
    """Draw a frame around the best alignment head."""
    from matplotlib.patches import Rectangle

    best = report.best
    corner = (best.head + 0.03, best.layer + 0.04)
    panel.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=MARK_COLOUR, linewidth=1.6, clip_on=False))
    note: dict[str, Any] = {"transform": panel.transAxes, "va": "top", "fontsize": 7.5, "color": MARK_COLOUR}
    layers = panel.get_ylim()[0]
    panel.text(0, -3 / 72 / (layers * CELL[1]), label, **note)


def _format_value(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def read_sentences(
    source: Path, target: Path | None = None, gold: Path | None = None, unit: LinkUnit = "words"
) -> list[Sentence]:
    """Return the sentences, without lines whose source or target is empty.

    Gold links index words separated by white space, or tokens of the model.
    """
    if gold is not None and target is None:
        raise UsageError("gold_without_target_file", path=gold)
    found = []
    paths = [path for path in (source, target, gold) if path is not None]
    for number, (text, *columns) in enumerate(read_parallel_lines(*paths), start=1):
        translation = columns[0] if columns else None
        if not text.strip() or (translation is not None and not translation.strip()):
            continue
        links = _parse_gold(text, columns, unit, MessagePart("line_of_file", path=gold, line=number))
        found.append(Sentence(text, translation, links, MessagePart("line_of_file", path=source, line=number)))
    if gold is not None and not any(each.gold and each.gold.sure for each in found):
        raise DataError("no_sure_gold_link", path=gold)
    if not found:
        raise DataError("no_usable_source_line", path=source)
    return found


def _parse_gold(source: str, other_lines: list[str], unit: LinkUnit, location: MessagePart) -> GoldLinks | None:
    if len(other_lines) < 2:
        return None
    target, line = other_lines
    sure, possible = parse_links(line, location)
    if unit == "tokens":
        return GoldLinks(sure, possible)
    return GoldLinks(sure, possible, tuple(source.split()), tuple(target.split()))
