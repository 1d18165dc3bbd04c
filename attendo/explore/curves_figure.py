"""Learning curves as a matplotlib figure. Needs the `plot` extra."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len

from attendo.errors import UsageError
from attendo.explore.curves import STEP_METRICS, FloatArray, History, XAxis
from attendo.explore.figure_style import FAINT, choose_fonts, plot_style, require_matplotlib, save_figure
from attendo.settings import suggest_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.7, 2.6)  # inches
LEGEND_LINE = 0.22  # inches; height of a legend line
LETTER_WIDTH = 0.075  # inches; average width of a letter
SMOOTHING = (100, 201)  # the loss line is a mean over 1/100 of the run, at most 201 steps
MAX_POINTS = 1000  # more are not distinguishable on a panel and make an SVG large
MAX_MARKED_POINTS = 40  # a line with at most this many points marks each of them
METRIC_TITLES = {
    "loss": ("Training loss", "nats per target token"),
    "valid_loss": ("Validation loss", "nats per target token"),
    "lr": ("Learning rate", ""),
    "bleu": ("BLEU", ""),
    "chrf": ("chrF", ""),
    "exact_match": ("Exact match", "%"),
    "error_rate": ("Lines that differ", "%"),
    "word_error_rate": ("Word error rate", "%"),
    "rouge1": ("ROUGE-1", ""),
    "rouge2": ("ROUGE-2", ""),
    "rougeL": ("ROUGE-L", ""),
    "perplexity": ("Perplexity", ""),
}
TIME_UNITS = (
    ("seconds", 1.0, 0.0),
    ("minutes", 60.0, 180.0),
    ("hours", 3600.0, 10_800.0),
    ("days", 86_400.0, 259_200.0),
)
COUNT_UNITS = (("", 1.0, 0.0), (" (thousands)", 1e3, 1e4), (" (millions)", 1e6, 2e6), (" (billions)", 1e9, 2e9))
# Distinguishable for colour-blind readers and dark enough for white paper (after Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0508c", "#8f6a00", "#3f9fd8", "#5c4a9c", "#4a4a4a")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))  # from the ninth run on, the colours repeat with dashes


@dataclass(frozen=True)
class XScale:
    """Horizontal axis: quantity, label and unit."""

    axis: XAxis
    label: str
    unit: float
    end: float  # in units

    def positions(self, run: History, steps: FloatArray) -> FloatArray:
        return run.axis_values(steps, self.axis) / self.unit


def draw_curves(runs: Sequence[History], metrics: Sequence[str], axis: XAxis, image_format: str) -> bytes:
    """Return the picture as a png, svg or pdf file, with one panel per metric. Default: all metrics."""
    require_matplotlib("attendo plot")
    with plot_style(choose_fonts("".join(run.name for run in runs))):
        return save_figure(build_curves_figure(runs, metrics, axis), image_format)


def build_curves_figure(runs: Sequence[History], metrics: Sequence[str], axis: XAxis) -> "Figure":
    """Return the picture as a matplotlib figure, which can be changed before saving."""
    from matplotlib.figure import Figure

    chosen, scale = _select_metrics(runs, metrics), _make_scale(runs, axis)
    columns = len(chosen) if len(chosen) <= 3 else 2 if len(chosen) == 4 else 3
    rows = math.ceil(len(chosen) / columns)
    figure = Figure(layout="constrained", facecolor="white")
    for number, metric in enumerate(chosen):
        panel = figure.add_subplot(rows, columns, number + 1)
        panel.set_xlim(-0.02 * scale.end, 1.03 * scale.end)
        panel.xaxis.set_major_formatter("{x:,.5g}")
        if number + columns >= len(chosen):
            panel.set_xlabel(scale.label)
        _fill_panel(panel, runs, metric, scale)
    width = PANEL[0] * columns
    lines = _name_runs(figure, runs, chosen, width) + _explain_marks(figure, runs, chosen, columns)
    figure.set_size_inches(width, PANEL[1] * rows + LEGEND_LINE * lines)
    return figure


def smoothing_window(count: int) -> int:
    """Return the length of the loss average for a run of `count` steps; an odd number."""
    parts, most = SMOOTHING
    return min(2 * (count // (2 * parts)) + 1, most)


def downsample(positions: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return only the minimum and maximum of each segment of a long line. The drawn line looks the same."""
    size = math.ceil(2 * len(positions) / MAX_POINTS)
    if size <= 2:
        return positions, values
    indices = []
    for start in range(0, len(positions), size):
        segment = values[start : start + size]
        indices += sorted({start + int(segment.argmin()), start + int(segment.argmax())})
    return positions[indices], values[indices]


def _select_metrics(runs: Sequence[History], metrics: Sequence[str]) -> list[str]:
    available = sorted({name: None for run in runs for name in run.metrics}, key=_rank)
    for name in metrics:
        if name not in available:
            raise UsageError(
                "unknown_run_metric",
                metric=name,
                suggestion=suggest_name(name, available),
                metrics=", ".join(available) or "none",
            )
    if not available:
        raise UsageError("no_metrics_to_draw")
    return list(dict.fromkeys(metrics)) or available


def _rank(metric: str) -> int:
    return list(METRIC_TITLES).index(metric) if metric in METRIC_TITLES else len(METRIC_TITLES)


def _make_scale(runs: Sequence[History], axis: XAxis) -> XScale:
    end = max(run.axis_values(np.append(run.steps, run.validation_steps), axis).max() for run in runs) or 1.0
    if axis == "step":
        return XScale(axis, "step", 1.0, end)
    name, unit, _ = [each for each in (TIME_UNITS if axis == "seconds" else COUNT_UNITS) if end >= each[2]][-1]
    return XScale(axis, f"training time ({name})" if axis == "seconds" else f"target tokens{name}", unit, end / unit)


def _fill_panel(panel: "Axes", runs: Sequence[History], metric: str, scale: XScale) -> None:
    title, unit = _panel_title(metric)
    panel.set_title(title, parse_math=False)
    panel.set_ylabel(unit)
    for order, run in enumerate(runs):
        if metric in run.metrics:
            _draw(panel, run, metric, scale, run_style(order))
    if metric == "loss":
        panel.set_ylim(*_loss_limits(runs))
    elif metric == "lr":
        _name_power(panel)


def _panel_title(metric: str) -> tuple[str, str]:
    """Return the title and unit of a panel."""
    if metric == "old_loss":
        metric = "old_valid_loss"
    if metric.startswith("old_"):
        title, unit = _panel_title(metric.removeprefix("old_"))
        return f"{title}, old pairs", unit
    return METRIC_TITLES.get(metric, (metric.replace("_", " ").capitalize(), ""))


def _draw(panel: "Axes", run: History, metric: str, scale: XScale, line: dict[str, Any]) -> None:
    steps, values = run.curve(metric)
    positions = scale.positions(run, steps)
    colour = line["color"]
    if metric == "lr":
        panel.plot(*downsample(positions, values), **line)
    elif metric == "loss":
        if (window := smoothing_window(len(steps))) > 1:
            panel.plot(*downsample(positions, values), color=colour, alpha=0.25, linewidth=0.6, zorder=1.9)
        panel.plot(*downsample(positions, run.smooth_loss(window)[1]), **line)
        bottom = panel.get_xaxis_transform()
        panel.plot(
            scale.positions(run, run.skipped_steps),
            [0.02] * len(run.skipped_steps),
            "x",
            color=colour,
            transform=bottom,
        )
    else:
        panel.plot(positions, values, marker="o" if len(steps) <= MAX_MARKED_POINTS else "", markersize=2.8, **line)
        best = steps == run.best_step
        panel.plot(positions[best], values[best], "o", markersize=7.5, fillstyle="none", color=colour)


def _name_power(panel: "Axes") -> None:
    """Write the power of ten as the axis label; matplotlib's offset text would move the title up."""
    from matplotlib.ticker import FuncFormatter

    panel.set_ylim(bottom=0)
    power = math.floor(math.log10(panel.get_ylim()[1]))
    if power == 0:
        return
    panel.set_ylabel(f"$\\times\\,10^{{{power}}}$")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10**power:.3g}"))


def _loss_limits(runs: Sequence[History]) -> tuple[float, float]:
    """Return y limits for 99.6% of the steps, so that a single outlier does not flatten the curve."""
    ends = []
    for run in runs:
        values = run.curve("loss")[1]
        if len(values):
            smooth = run.smooth_loss(smoothing_window(len(values)))[1]
            ends += [*np.quantile(values, (0.002, 0.998)), smooth.min(), smooth.max()]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _name_runs(figure: "Figure", runs: Sequence[History], metrics: Sequence[str], width: float) -> int:
    """Add a legend of the runs above the panels and return its number of lines."""
    from matplotlib.lines import Line2D

    drawn = {order: run for order, run in enumerate(runs) if set(run.metrics) & set(metrics)}
    names = [shorten_name(run.name, int(width / LETTER_WIDTH) - 8) for run in drawn.values()]
    columns = min(len(drawn), max(1, int(width / (max(map(cell_len, names)) * LETTER_WIDTH + 0.6))))
    samples = [Line2D([], [], **run_style(order)) for order in drawn]
    # Numbers are placeholders: some versions of matplotlib omit a label that starts with an underscore.
    legend = figure.legend(samples, list(map(str, drawn)), loc="outside upper left", ncols=columns)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set(text=name, parse_math=False)
    return math.ceil(len(drawn) / columns)


def _explain_marks(figure: "Figure", runs: Sequence[History], metrics: Sequence[str], panels: int) -> int:
    """Add a legend of the marks in use below the panels and return its number of lines."""
    from matplotlib.lines import Line2D

    marks: dict[str, dict[str, Any]] = {}
    windows = sorted({smoothing_window(len(run.curve("loss")[0])) for run in runs if "loss" in run.metrics})
    if "loss" in metrics and windows[-1] > 1:
        width = f"{windows[0]} to {windows[-1]}" if len(windows) > 1 else f"{windows[0]}"
        marks[f"single steps; the line is the mean of {width}"] = {"alpha": 0.5, "linewidth": 0.6}
    if "loss" in metrics and any(len(run.skipped_steps) for run in runs):
        marks["skipped step"] = {"linestyle": "", "marker": "x"}
    if set(metrics) - set(STEP_METRICS) and any(run.best_step is not None for run in runs):
        marks["best validation"] = {"linestyle": "", "marker": "o", "markersize": 7, "fillstyle": "none"}
    if not marks:
        return 0
    columns = len(marks) if panels > 1 else 1
    samples = [Line2D([], [], color=FAINT, **mark) for mark in marks.values()]
    figure.legend(samples, list(marks), loc="outside lower left", ncols=columns, labelcolor=FAINT, fontsize=8)
    return math.ceil(len(marks) / columns)


def shorten_name(name: str, width: int) -> str:
    """Shorten a run name to `width` cells.

    A long path keeps its first and last folders, because paths with equal ends differ in the first. A long name keeps
    its end, because similar runs differ there.
    """
    name = "".join(letter if letter.isprintable() else "·" for letter in name)
    first, *rest = Path(name).parts
    while cell_len(name) > width and len(rest) > 1:
        del rest[0]
        name = str(Path(first, "…", *rest))
    while cell_len(name) > width:
        name = "…" + name[2:]
    return name


def run_style(order: int) -> dict[str, Any]:
    """Return the line style of a run by its index."""
    dashes = DASHES[order // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[order % len(COLOURS)], "linestyle": dashes, "linewidth": 1.4}
