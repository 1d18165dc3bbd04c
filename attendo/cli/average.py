"""`attendo average`: the mean of a run's last checkpoints as a model folder."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CHECKPOINTS = 5  # checkpoints, unless more are asked for


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, as attendo train wrote it.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    last: Annotated[
        int | None, typer.Option(min=1, help="How many of the last checkpoints; all that are there, at most 5.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is in the folder already.")
    ] = False,
) -> None:
    """Average the weights of a run's last checkpoints: often better than the best of them."""
    from attendo.errors import UsageError
    from attendo.runs.weights import average_model
    from attendo.train.checkpoint import Checkpoints

    if not (run / "run.toml").is_file():
        raise UsageError("run_not_found", folder=run)
    if (out / "manifest.json").is_file() and not overwrite:
        raise UsageError("output_model_exists", folder=out)
    kept = Checkpoints(run / "checkpoints").steps()
    if len(kept) < (last or 1):
        raise UsageError("too_few_checkpoints", folder=run, count=len(kept), last=last or 1)
    steps = kept[-(last or DEFAULT_CHECKPOINTS) :]
    average_model(run, steps).save(out)
    typer.echo(f"mean of steps {', '.join(map(str, steps))} written to {out}", err=True)
