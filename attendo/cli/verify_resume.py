"""`attendo verify-resume`: shows on one's own data, settings and device that a resumed run is the same run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.threads import Threads

if TYPE_CHECKING:
    from attendo.recipes.run_config import RunConfig
    from attendo.recipes.verify_resume import Compared


def verify_resume(
    run_file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Settings of the run.")],
    steps: Annotated[int, typer.Option(min=2, help="Steps to train.")] = 20,
    data: Annotated[Path | None, typer.Option(help="Folder that the files of the run file are in.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Threads = None,
) -> None:
    """Train some steps twice, once stopped and resumed several times, and compare both bit for bit.

    Exit code 0: the same losses, weights, optimizer and random state. 1: not the same, and what to try.
    """
    import os
    from tempfile import TemporaryDirectory

    from attendo.cli.train import new_config
    from attendo.errors import UsageError
    from attendo.recipes.verify_resume import Trying, Verification, advice
    from attendo.text_model import pick_device

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("verify_resume_under_torchrun")
    config = new_config(run_file, {"source": None, "target": None, "folder": data}, change or [])
    kind = pick_device(device).type
    with TemporaryDirectory(prefix="attendo-") as name:
        folder = Path(name)
        verification = Verification(config, _prepared(config, folder), steps, kind)
        compared = []
        for report in verification.run(folder):
            if isinstance(report, Trying):
                typer.echo(f"{report.what} ...", err=True)
            else:
                compared.append(report)
    _show(compared, verification.stops)
    if not all(each.equal for each in compared):
        print(f"not the same run: {advice(verification.config, kind)}")
        raise typer.Exit(1)
    print("the same run, bit for bit")


def _prepared(config: "RunConfig", folder: Path) -> Path:
    """The data of all runs."""
    import torch

    from attendo.cli.preparing import show_preparing
    from attendo.recipes.run import Run

    run = Run.begin(config, folder / "prepared", torch.device("cpu"))
    show_preparing(run)
    return run.data_folder.absolute()


def _show(compared: "list[Compared]", stops: list[int]) -> None:
    """A table: what, and whether it is equal or by how much it is not."""
    print(f"stopped after step {', '.join(map(str, stops))} and resumed by a new process each time:")
    width = max(len(each.what) for each in compared)
    for each in compared:
        result = "equal"
        if not each.equal:
            result = f"{each.unequal} of {each.count} differ, by {each.largest:.2g} at most ({each.where})"
        print(f"  {each.what:<{width}}  {result}")
