"""The measures of exposure bias as a matplotlib figure with four panels. Needs the `plot` extra."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attendo.explore.curves_figure import (
    COLOURS,
    LEGEND_LINE,
    LETTER_WIDTH,
    MAX_MARKED_POINTS,
    PANEL,
    run_style,
    shorten_name,
)
from attendo.explore.exposure.measures import MAX_DISTANCE, ExposureReport, Values
from attendo.explore.figure_style import FAINT, choose_fonts, plot_style, require_matplotlib, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MIN_SHARE = 0.05  # of the sentences; positions that fewer references have are not drawn
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.2, 1, 1.2)))  # first, second ... curve of a model
Corner = Literal["best", "lower left"]
MARKERS = ("o", "s", "^", "D")
CORRUPTION_NAMES = {"random": "random token", "wrong": "best wrong token", "dropped": "dropped", "doubled": "doubled"}


def draw_exposure(reports: Mapping[str, ExposureReport], image_format: str) -> bytes:
    """Return the picture as a png, svg or pdf file, with one colour per model. Keys are the names of the models."""
    require_matplotlib("attendo exposure --figure")
    with plot_style(choose_fonts("".join(reports))):
        return save_figure(build_exposure_figure(reports), image_format)


def build_exposure_figure(reports: Mapping[str, ExposureReport]) -> "Figure":
    """Return the picture as a matplotlib figure, which can be changed before saving."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(layout="constrained", facecolor="white")
    panels = [figure.add_subplot(2, 2, number) for number in (1, 2, 3, 4)]
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    several = list(reports.values())
    _draw_accuracy(panels[0], several)
    _draw_recovery(panels[1], several)
    if any(report.excess for report in several):
        _draw_excess(panels[2], several)
    else:
        _draw_quarters(panels[2], several)
    _draw_distractors(panels[3], several)
    width = 2 * PANEL[0]
    lines = _name_models(figure, list(reports), width) if len(reports) > 1 else 0
    figure.set_size_inches(width, 2 * PANEL[1] + LEGEND_LINE * lines)
    return figure


def _draw_accuracy(panel: "Axes", reports: Sequence[ExposureReport]) -> None:
    panel.set(title="Accuracy by position", xlabel="position in the reference", ylabel="correct tokens, %")
    for order, report in enumerate(reports):
        accuracy = report.accuracy
        last = _find_last(accuracy.counts, report.sentences)
        for curve, values in enumerate((accuracy.gold, accuracy.own)):
            _plot(panel, [None if each is None else 100 * each for each in values[:last]], order, curve)
    panel.set_ylim(0, 102)
    _explain_lines(panel, ("after gold prefix", "after own prefix"), len(reports) > 1, "lower left")


def _draw_recovery(panel: "Axes", reports: Sequence[ExposureReport]) -> None:
    from matplotlib.lines import Line2D

    panel.set(title="Recovery after one corrupted token", xlabel="tokens after the corrupted one", ylabel="Δ, nats")
    alone = len(reports) == 1
    for order, report in enumerate(reports):
        for curve, recovery in enumerate(report.recovery.values()):
            _plot(panel, recovery.deltas, curve if alone else order, 0 if alone else curve, MARKERS[curve])
    panel.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
    panel.set_xticks(range(1, MAX_DISTANCE + 1))
    panel.set_xlim(0.65, MAX_DISTANCE + 0.35)
    styles = [
        _make_style(COLOURS[curve] if alone else FAINT, 0 if alone else curve, marker)
        for curve, marker in enumerate(MARKERS)
    ]
    _add_legend(panel, [Line2D([], [], **style) for style in styles], list(CORRUPTION_NAMES.values()))


def _draw_excess(panel: "Axes", reports: Sequence[ExposureReport]) -> None:
    panel.set(title="Excess accumulated error", xlabel="tokens of the output", ylabel="%ExAccErr")
    for order, report in enumerate(reports):
        for curve, excess in enumerate((report.excess or {}).values()):
            _plot(panel, excess.percent, order, curve)
    panel.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
    _explain_lines(panel, ("sampled history", "greedy history"), len(reports) > 1)


def _draw_quarters(panel: "Axes", reports: Sequence[ExposureReport]) -> None:
    panel.set(title="Precision by quarter of the output", xlabel="quarter", ylabel="n-grams in the reference, %")
    for order, report in enumerate(reports):
        for curve, values in enumerate((report.quarters.unigrams, report.quarters.bigrams)):
            _plot(panel, [None if each is None else 100 * each for each in values], order, curve)
    panel.set_xticks(range(1, 5))
    panel.set_ylim(0, 102)
    _explain_lines(panel, ("unigrams", "bigrams"), len(reports) > 1, "lower left")


def _draw_distractors(panel: "Axes", reports: Sequence[ExposureReport]) -> None:
    panel.set(title="Reference and distractor", xlabel="position", ylabel="log-probability, nats")
    if not any(report.distractor.counts for report in reports):
        panel.set(xticks=(), yticks=())
        panel.text(0.5, 0.5, "no line has a distractor", transform=panel.transAxes, ha="center", color=FAINT)
        return
    for order, report in enumerate(reports):
        found = report.distractor
        last = _find_last(found.counts, report.sentences)
        for curve, values in enumerate((found.reference, found.distractor)):
            _plot(panel, values[:last], order, curve)
    panel.set_ylim(top=-0.03 * panel.get_ylim()[0])  # room for the markers of a reference near 0
    _explain_lines(panel, ("reference", "distractor"), len(reports) > 1)


def _find_last(counts: Sequence[int], sentences: int) -> int:
    """Return the number of positions that enough sentences have."""
    return sum(count >= MIN_SHARE * sentences for count in counts)


def _plot(panel: "Axes", values: Sequence[float | None] | Values, order: int, curve: int, marker: str = "") -> None:
    """Draw a curve from position 1 on, in the colour of a model and the line style of a curve."""
    numbers = [math.nan if each is None else each for each in values]
    colour = run_style(order)["color"]
    style = _make_style(colour, curve, marker, marked=len(numbers) <= MAX_MARKED_POINTS)
    panel.plot(range(1, len(numbers) + 1), numbers, **style)


def _make_style(colour: str, curve: int, marker: str, marked: bool = True) -> dict[str, Any]:
    """Return the line style of a curve. Without a marker of its own, the first curve has full circles."""
    filled = colour if marker or curve == 0 else "white"  # so that two curves with equal values are both visible
    dots = {"marker": marker or "o", "markersize": 3.2, "markerfacecolor": filled} if marked else {}
    return {"color": colour, "linestyle": LINES[curve], "linewidth": 1.4, **dots}


def _explain_lines(panel: "Axes", names: Sequence[str], several: bool, place: Corner = "best") -> None:
    """Add a legend of the curves of a model. With several models it is grey, because colours are models."""
    from matplotlib.lines import Line2D

    styles = [_make_style(FAINT if several else COLOURS[0], curve, "") for curve in range(len(names))]
    _add_legend(panel, [Line2D([], [], **style) for style in styles], names, place)


def _add_legend(panel: "Axes", samples: "Sequence[Line2D]", names: Sequence[str], place: Corner = "best") -> None:
    panel.legend(samples, names, loc=place, fontsize=8, handlelength=2.6)


def _name_models(figure: "Figure", names: Sequence[str], width: float) -> int:
    """Add a legend of the models above the panels and return its number of lines."""
    from matplotlib.lines import Line2D
    from rich.cells import cell_len

    shown = [shorten_name(name, int(width / LETTER_WIDTH) - 8) for name in names]
    columns = min(len(shown), max(1, int(width / (max(map(cell_len, shown)) * LETTER_WIDTH + 0.6))))
    samples = [Line2D([], [], **run_style(order)) for order in range(len(shown))]
    # Numbers are placeholders: some versions of matplotlib omit a label that starts with an underscore.
    legend = figure.legend(samples, list(map(str, range(len(shown)))), loc="outside upper left", ncols=columns)
    for text, name in zip(legend.get_texts(), shown, strict=True):
        text.set(text=name, parse_math=False)
    return math.ceil(len(shown) / columns)
