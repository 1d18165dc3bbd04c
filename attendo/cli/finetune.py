"""`attendo finetune`: a model goes on learning from other text, and tells what it forgets."""

from pathlib import Path
from typing import Annotated

import typer

# A model that has learned needs small steps, and not many of them.
GENTLE = ("train.peak_lr=2e-4", "train.schedule=linear")


def finetune(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder to start from.")],
    source: Annotated[Path, typer.Option(help="Source text, one sentence a line (plain, .gz or .xz).")],
    target: Annotated[Path, typer.Option(help="Target text, line by line beside it.")],
    out: Annotated[Path, typer.Option(help="Run folder; the model goes to its model/.")],
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is in the folder already.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Go on training a model on your own text, with its tokenizer and network.

    Every validation tells the scores on the new validation pairs and, beside them, on the old model's own.
    """
    from attendo.cli.train import new_config
    from attendo.cli.training import follow
    from attendo.interop.opening import model_folder
    from attendo.recipes.run import Run
    from attendo.recipes.run_config import toml_literal
    from attendo.store import load_model
    from attendo.text_model import pick_device
    from attendo.train.world import joined

    load_model(model_folder(model))  # one that is damaged or not there is told before a run folder is made
    changes = [*GENTLE, f"start_from={toml_literal(str(model))}", *(change or [])]
    config = new_config(None, {"source": source, "target": target}, changes)
    with joined(pick_device(device)) as (world, own_device):
        done = follow(Run.begin(config, out, own_device, overwrite, world))
    if done.stopped:
        raise typer.Exit(done.exit_code)
    done.say(f"model written to {done.model_folder}")
