"""`attendo train`: text files to a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from attendo.errors import UsageError

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def train(
    run_file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="Settings of the run.")] = None,
    source: Annotated[Path | None, typer.Option(help="Source text, one sentence a line (plain, .gz or .xz).")] = None,
    target: Annotated[Path | None, typer.Option(help="Target text, line by line beside it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; the model goes to its model/.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is in the folder already.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print every setting, resolved, and stop.")] = False,
    device: Device = "auto",
) -> None:
    """Train a model on parallel text.

    Either from a run file, or from two text files: attendo train --source a.en --target a.de --out runs/x
    """
    from attendo.recipes.run_config import RunConfig, apply_changes, read_run_file, to_toml

    if run_file is None and None in (source, target, out):
        raise UsageError("give a run file, or --source, --target and --out")
    values = {} if run_file is None else read_run_file(run_file)
    files = {"source": source, "target": target}
    if any(files.values()) and isinstance(values.setdefault("data", {}), dict):
        values["data"] |= {name: path for name, path in files.items() if path is not None}
    config = RunConfig(**apply_changes(values, change or []))
    if show:
        print(to_toml(config), end="")
        return

    from attendo.cli.training import follow
    from attendo.recipes.run import Run
    from attendo.text_model import pick_device

    folder = out or Path("runs") / (run_file or Path()).stem
    done = follow(Run(config, folder, pick_device(device), overwrite))
    done.say(f"model written to {done.model_folder}")
    if done.exit_code:
        raise typer.Exit(done.exit_code)
    done.say(f"next: attendo generate {done.model_folder} < text")
