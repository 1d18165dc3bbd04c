"""The `attendo train` command: trains a model on text, or resumes a run."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli import options as shared
from attendo.cli.language import localise, say, translate
from attendo.cli.output import print_stderr
from attendo.errors import UsageError, require_package

if TYPE_CHECKING:
    from attendo.runs.config import RunConfig

# Options that --resume allows.
_WITH_RESUME = ("resume", "change", "steps", "override", "stop_at", "show", "tensorboard", "device", "threads")


@shared.expand_options
def train(
    context: typer.Context,
    *,
    run_file: shared.RunFile = None,
    files: shared.TextOptions,
    out: Annotated[Path | None, typer.Option(help="Run folder; the model is written to its model/ folder.")] = None,
    data: shared.Data = None,
    max_bad_ratio: shared.MaxBadRatio = None,
    preset: Annotated[
        str | None, typer.Option(help="Network size: tiny, small, base, big, paper; default: chosen from the data.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Total updates; default: chosen from the data.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Instead of --steps: passes over the data.")] = None,
    change: shared.Changes = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume the run in this folder.")] = None,
    override: Annotated[
        bool, typer.Option("--override", help="With --resume: allow settings (--set) that differ from the run's.")
    ] = False,
    overwrite: shared.Overwrite = False,
    continues: Annotated[
        bool,
        typer.Option("--continue", help="Resume the run if --out has it, else begin it; for commands that restart."),
    ] = False,
    stop_at: Annotated[int | None, typer.Option(min=1, help="Save and stop after this step, to resume later.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print all resolved settings, then exit.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard too.")] = False,
    device: shared.Device = "auto",
    threads: shared.Threads = None,
) -> None:
    """Train a model on parallel text, or on running text.

    From a run file, or from parallel text: attendo train --source a.en --target a.de --out runs/x; attendo train
    pairs.tsv. A decoder-only model needs running text: attendo train --text a.txt --out runs/x

    Settings you leave out are chosen from the data and printed. Ctrl-C saves. --resume continues bit for bit.
    """
    from attendo.runs.config import load_run_config
    from attendo.runs.run_folder import check_free

    check_ahead(device, tensorboard)
    options = {"--max-bad-ratio": ("data.max_bad_ratio", max_bad_ratio), "--preset": ("preset", preset)}
    options |= {"--epochs": ("train.epochs", epochs), "--steps": ("train.steps", steps)}
    changes = merge_changes(change, options)
    folder = out or Path("runs") / _stem(run_file or Path())
    if resume is not None:
        _refuse_with_resume(context)
        config = _load_resumed_config(resume, changes, override)
    else:
        if continues and overwrite:
            raise UsageError("continue_with_overwrite")
        if not continues:
            check_free(folder, overwrite or show)  # fail before reading the text
        given = {**asdict(files), "folder": data}
        config = make_config(run_file, given, changes, needs_out=out is None and not show)
    if show:
        from attendo.runs.new_run import load_text_settings
        from attendo.runs.resolved_config import format_resolved_config

        config = config or load_run_config(resume or Path())
        print(format_resolved_config(config, load_text_settings(config.data)), end="")
        return

    _train(config, resume, folder, device, overwrite, stop_at, tensorboard, continues)


def _train(
    config: "RunConfig | None",
    resume: Path | None,
    folder: Path,
    device: str,
    overwrite: bool,
    stop_at: int | None,
    tensorboard: bool,
    continues: bool,
) -> None:
    """Resume the run in `resume`, or begin one in `folder`."""
    from attendo.cli.progress import report_end, train_with_progress
    from attendo.runs.report_sinks import TensorBoard
    from attendo.runs.run import Run
    from attendo.runs.run_folder import is_run_begun
    from attendo.text_model import pick_device
    from attendo.train.distributed import init_distributed

    with init_distributed(pick_device(device)) as (world, own_device):
        # Rank 0 decides: it may begin the run before another rank looks.
        if continues and world.broadcast_bool(is_run_begun(folder)):
            assert config is not None
            _check_same_settings(folder, config)
            resume, config = folder, None
        if resume is not None:
            run = Run.resume(resume, own_device, world, config)
        else:
            assert config is not None
            run = Run.begin(config, folder, own_device, overwrite, world)
        run.sinks += [TensorBoard()] if tensorboard else []
        outcome = train_with_progress(run, stop_at)
    report_end(outcome)
    outcome.print_line(say("next: attendo generate {model_folder} < text", model_folder=outcome.model_folder))


def make_config(
    run_file: Path | None,
    files: Mapping[str, Any],
    changes: Sequence[str],
    needs_out: bool = False,
    shown_prefix: str = "",
    report: Callable[[str], None] | None = None,
) -> "RunConfig":
    """Return the config of a new run. Settings left out are chosen from its data.

    Choices whose names begin with `shown_prefix` are passed to `report`, or printed to standard error without it.
    """
    from attendo.runs.config import toml_literal
    from attendo.runs.new_run import describe_files, is_data_file, read_settings, resolve_settings

    if run_file is not None and is_data_file(run_file):
        files, run_file, needs_out = {**files, "file": [run_file, *(files.get("file") or ())]}, None, False
    if files.get("text_field") is not None and not files.get("text"):
        raise UsageError("field_without_text")
    named = any(files.get(name) for name in ("text", "file")) or (files.get("source") and files.get("target"))
    if run_file is None and (needs_out or not (named or changes)):
        raise UsageError("training_input_missing")
    new = resolve_settings(read_settings(run_file, files), changes, run_file)
    speaks = os.environ.get("RANK", "0") == "0"  # only rank 0 prints
    for line in describe_files(new.config.data) if speaks and files.get("file") else ():
        print_stderr(localise(line))
    for choice in new.choices if speaks else ():
        if choice.name.startswith(shown_prefix):
            reason = translate(choice.reason)
            (report or print_stderr)(f"{choice.name} = {toml_literal(choice.value)}  # {reason}")
    return new.config


def check_ahead(device: str, tensorboard: bool = False) -> None:
    """Raise an error for a missing device or package before text is read."""
    if device != "auto":  # auto always exists, and resolving it imports torch
        from attendo.text_model import pick_device

        pick_device(device)
    if tensorboard:
        require_package("tensorboard", "tensorboard", "TensorBoard logging")


def merge_changes(changes: Sequence[str] | None, options: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return the changes of --set and of options that change one setting. `options`: option → setting and value."""
    changes = changes or []
    given = {option: (name, value) for option, (name, value) in options.items() if value is not None}
    for option, (name, _) in given.items():
        if any(change.partition("=")[0].strip() == name for change in changes):
            raise UsageError("setting_given_twice", option=option, setting=name)
    return [*changes, *(f"{name}={value}" for name, value in given.values())]


def _refuse_with_resume(context: typer.Context) -> None:
    """Raise `UsageError` if an option was given that only a new run has."""
    given = [
        each.metavar if each.param_type_name == "argument" else each.opts[0]
        for each in context.command.params
        if each.name not in _WITH_RESUME and str(context.get_parameter_source(str(each.name))).endswith("COMMANDLINE")
    ]
    if given:
        raise UsageError("options_with_resume", options=", ".join(map(str, given)))


def _stem(path: Path) -> str:
    """Return the default name of a run folder: "words" for words.tsv.gz."""
    return path.name.removesuffix("".join(path.suffixes[-2:] if path.suffix in (".gz", ".xz") else path.suffixes[-1:]))


def _check_same_settings(folder: Path, config: "RunConfig") -> None:
    """Raise `UsageError` if the run in the folder was begun with other settings. The run has computed its steps."""
    from attendo.runs.config import list_differences, load_run_config, make_paths_absolute

    before, now = load_run_config(folder), make_paths_absolute(config)
    if now.train.epochs is not None:
        now = now.replace(train=now.train.replace(epochs=None, steps=before.train.steps))
    if other := list_differences(before, now):
        raise UsageError("resume_settings_differ", folder=folder, settings=", ".join(other))


def _load_resumed_config(folder: Path, changes: Sequence[str], override: bool) -> "RunConfig | None":
    """Return the settings that replace the run's own, or None if they do not change."""
    from attendo.runs.config import list_differences, load_run_config

    config = load_run_config(folder, changes)
    if override:
        return config
    if other := list_differences(load_run_config(folder), config):
        raise UsageError("resume_settings_differ", folder=folder, settings=", ".join(other))
    return None
