"""`attendo train`: text to a model folder, or a run that goes on where it stopped."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.data.config import DataConfig
    from attendo.recipes.run_config import RunConfig

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def train(
    run_file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="Settings of the run.")] = None,
    source: Annotated[Path | None, typer.Option(help="Source text, one sentence a line (plain, .gz or .xz).")] = None,
    target: Annotated[Path | None, typer.Option(help="Target text, line by line beside it.")] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="Instead of the two: running text, for a decoder-only model that continues text."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; the model goes to its model/.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder that the files of the run file are in.")] = None,
    max_bad_ratio: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of lines that may be left out as bad; 0.01 unless set.")
    ] = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    override: Annotated[
        bool, typer.Option("--override", help="With --resume: go on with other settings (--set) than before.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is in the folder already.")
    ] = False,
    stop_at: Annotated[
        int | None, typer.Option(min=1, help="Stop after this step, saved, to be resumed later.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print every setting, resolved, and stop.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard too.")] = False,
    device: Device = "auto",
) -> None:
    """Train a model on parallel text, or on running text.

    Either from a run file, or from two text files: attendo train --source a.en --target a.de --out runs/x; or from one
    whose text it is to continue: attendo train --text a.txt --out runs/x

    What is left open is chosen from the data and printed. Ctrl-C saves; --resume goes on, bit for bit.
    """
    from attendo.recipes.run_config import stored_config
    from attendo.recipes.run_folder import check_free

    folder = out or Path("runs") / (run_file or Path()).stem
    if resume is not None:
        if any((run_file, source, target, text, out, data, overwrite, max_bad_ratio is not None)):
            raise UsageError("--resume takes all settings from the run's folder: give nothing but --set with it")
        config = resumed_config(resume, change or [], override)
    else:
        check_free(folder, overwrite or show)  # before much text is read for nothing
        files = {"source": source, "target": target, "text": text, "folder": data}
        config = new_config(run_file, files, changed(change, max_bad_ratio), needs_out=out is None and not show)
    if show:
        _print_settings(config or stored_config(resume or Path()))
        return

    from attendo.cli.training import follow, say_end
    from attendo.recipes.run import Run
    from attendo.recipes.sinks import TensorBoard
    from attendo.text_model import pick_device
    from attendo.train.world import joined

    with joined(pick_device(device)) as (world, own_device):
        if resume is not None:
            run = Run.resume(resume, own_device, world, config)
        else:
            assert config is not None
            run = Run.begin(config, folder, own_device, overwrite, world)
        run.sinks += [TensorBoard()] if tensorboard else []
        done = follow(run, stop_at)
    say_end(done)
    done.say(f"next: attendo generate {done.model_folder} < text")


def new_config(
    run_file: Path | None,
    files: dict[str, Path | None],
    changes: list[str],
    needs_out: bool = False,
    told: str = "",
) -> "RunConfig":
    """The settings of a new run, those left open chosen from its data; choices that begin with `told` are told."""
    from attendo.recipes.run_config import RunConfig, mistakes_in, named_about, read_run_file, with_changes

    named = files.get("text") is not None or (files["source"] is not None and files["target"] is not None)
    if run_file is None and (needs_out or not (named or changes)):
        raise UsageError("give a run file, or --source, --target and --out, or --text and --out")
    values: dict[str, Any] = {} if run_file is None else read_run_file(run_file)
    if any(files.values()) and isinstance(values.setdefault("data", {}), dict):
        values["data"] |= {name: path for name, path in files.items() if path is not None}
    with mistakes_in(run_file, changes):
        values = with_changes(values, changes)
        config = RunConfig(**values)
        if about := named_about(config, text_of(config.data)).told():
            values["about"] = about
            config = config.replace(about=about)
        return config if config.preset != "auto" else _chosen(values, config, told)


def _print_settings(config: "RunConfig") -> None:
    from attendo.recipes.shown import shown

    print(shown(config, text_of(config.data)), end="")


def changed(changes: list[str] | None, max_bad_ratio: float | None) -> list[str]:
    """The changes of --set, and those that have an option of their own."""
    return [*(changes or []), *([] if max_bad_ratio is None else [f"data.max_bad_ratio={max_bad_ratio}"])]


def text_of(data: "DataConfig") -> "DataConfig":
    """The settings that name its files."""
    if data.prepared is None:
        return data
    from attendo.recipes.corpora import made_from  # needs torch

    return made_from(data.prepared)


def _chosen(values: dict[str, Any], config: "RunConfig", told: str) -> "RunConfig":
    """With what was left open chosen from the data, each choice told with its reason, as a line of a run file."""
    from attendo.recipes.auto import applied, choose
    from attendo.recipes.corpora import amount
    from attendo.recipes.run_config import RunConfig, toml_literal

    choices = choose(config.model_dump(exclude_unset=True), amount(config.data, config.seed))
    for choice in choices:
        if choice.name.startswith(told) and os.environ.get("RANK", "0") == "0":  # of several processes one speaks
            print(f"{choice.name} = {toml_literal(choice.value)}  # {choice.reason}", file=sys.stderr)
    return RunConfig(**applied(values, choices))


def resumed_config(folder: Path, changes: list[str], override: bool) -> "RunConfig | None":
    """The settings that replace the run's own; None where they stay."""
    from attendo.recipes.run_config import differing, stored_config

    if not (folder / "run.toml").is_file():
        raise UsageError(f"{folder} holds no run to resume: name a folder that attendo train wrote (--out)")
    config = stored_config(folder, changes)
    if override:
        return config
    if other := differing(stored_config(folder), config):
        raise UsageError(f"{folder} was begun with other settings than {', '.join(other)}: say --override to mean it")
    return None
