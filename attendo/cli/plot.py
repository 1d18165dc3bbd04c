"""`attendo plot`: learning curves of one or several runs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from attendo.errors import UsageError


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or their metrics.jsonl.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file; curves.png unless given."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this one: loss, valid_loss, lr, bleu ...; repeatable."),
    ] = None,
    x: Annotated[Literal["step", "seconds", "tokens"], typer.Option(help="What the horizontal axis counts.")] = "step",
) -> None:
    """Draw learning curves: training and validation loss, learning rate, scores.

    Prints the path of the picture: curves.png in the run folder, or here when there are several runs.
    """
    from attendo.explore.curves import metrics_file, read_histories
    from attendo.explore.curves_figure import FORMATS, draw_curves
    from attendo.explore.heatmap_style import require_matplotlib

    require_matplotlib("attendo plot")
    path = output or (metrics_file(runs[0]).parent if len(runs) == 1 else Path()) / "curves.png"
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UsageError("unknown_curves_format", path=path)
    histories = read_histories(runs)
    picture = draw_curves(histories, metric or [], x, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    told = f"{len(histories)} runs" if len(histories) > 1 else histories[0].name
    print(f"learning curves of {told} written to {path}", file=sys.stderr)
    print(path)
