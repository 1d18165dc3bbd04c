"""The `attendo average` command: averages a run's last checkpoints into a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from attendo.cli.language import list_names, say
from attendo.cli.output import print_stderr

DEFAULT_CHECKPOINTS = 5  # maximum number of checkpoints to average without --last


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by attendo train.")],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    last: Annotated[
        int | None, typer.Option(min=1, help="Number of last checkpoints to average; default: all, at most 5.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model in the folder.")] = False,
) -> None:
    """Average the weights of a run's last checkpoints."""
    from attendo.errors import UsageError
    from attendo.runs.config import load_run_config
    from attendo.runs.weights import average_model
    from attendo.train.checkpoint import Checkpoints

    load_run_config(run)  # raises an error if there is no run
    if (out / "manifest.json").is_file() and not overwrite:
        raise UsageError("output_model_exists", folder=out)
    all_steps = Checkpoints(run / "checkpoints").steps()
    if len(all_steps) < (last or 1):
        raise UsageError("too_few_checkpoints", folder=run, count=len(all_steps), last=last or 1)
    steps = all_steps[-(last or DEFAULT_CHECKPOINTS) :]
    average_model(run, steps).save(out)
    print_stderr(say("mean of steps {names} written to {out}", names=list_names(steps), out=out))
