"""Draws the measurements of `decode_growth.py` in the style of the project's learning curves."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attendo.explore.curves_figure import run_style
from attendo.explore.figure_style import FAINT, plot_style

SIZE = (7.4, 3.1)  # inches
ENGINES = ("cached", "fast")
BEAMS = {1: "Greedy", 4: "Beam 4"}

Points = tuple[list[float], list[float]]


def draw(known: dict[str, Any], folder: Path, device: str) -> Iterator[Path]:
    """Draw one picture for each measurement in `known`: time, memory."""
    facts = known.get("facts", {})
    if rows := known.get("time"):
        unit = f"µs a token, batch of {facts['batch']}"
        yield _picture(
            folder / f"decode-time-{device}.svg",
            rows,
            ("steps", "tokens of an answer", unit),
            lambda row: _time(row, facts),
        )
    if rows := known.get("memory"):
        labels = ("batch", "sentences side by side", "MiB beside the weights")
        yield _picture(folder / f"decode-memory-{device}.svg", rows, labels, lambda row: row["bytes"] / 2**20)


def _time(row: dict[str, Any], facts: dict[str, Any]) -> float:
    return 1e6 * min(row["seconds"]) / (facts["batch"] * row["steps"])


def _picture(
    path: Path, rows: Sequence[dict[str, Any]], labels: tuple[str, str, str], value: Callable[[dict[str, Any]], float]
) -> Path:
    x, below, beside = labels
    with plot_style(["DejaVu Sans"]):
        figure = Figure(figsize=SIZE, layout="constrained", facecolor="white")
        for number, (beam, title) in enumerate(BEAMS.items()):
            panel = figure.add_subplot(1, 2, number + 1)
            panel.set(title=title, xlabel=below)
            panel.set_ylabel(beside if number == 0 else "")
            for order, engine in enumerate(ENGINES):
                chosen = [row for row in rows if (row["engine"], row["beam"]) == (engine, beam)]
                _line(panel, ([row[x] for row in chosen], [value(row) for row in chosen]), order)
            panel.set_xlim(left=0)
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter("{x:,.0f}")
        samples = [Line2D([], [], marker="o", markersize=3, **run_style(order)) for order in range(len(ENGINES))]
        samples.append(Line2D([], [], color=FAINT, linewidth=0.8, linestyle=(0, (4, 2))))
        names = [*(f"{engine} engine" for engine in ENGINES), "the straight line nearest to the points"]
        figure.legend(samples, names, loc="outside upper left", ncols=3)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _line(panel: Axes, points: Points, order: int) -> None:
    places, values = np.array(points[0], float), np.array(points[1])
    slope, start = np.polyfit(places, values, 1)
    ends = np.array([0.0, places.max()])
    panel.plot(
        ends, start + slope * ends, color=run_style(order)["color"], linewidth=0.8, linestyle=(0, (4, 2)), alpha=0.7
    )
    panel.plot(places, values, marker="o", markersize=3, **run_style(order))
