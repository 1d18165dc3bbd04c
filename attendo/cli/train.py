"""The `attendo train` command: trains a model on text, or resumes a run."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.threads import Threads
from attendo.errors import UsageError, require_package

if TYPE_CHECKING:
    from attendo.runs.config import RunConfig

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


RunFile = Annotated[
    Path | None,
    typer.Argument(metavar="RUN.toml", help="Run file; or a .tsv, .csv or .jsonl file with source and target."),
]
Source = Annotated[list[Path] | None, typer.Option(help="Source text, one sentence per line (plain, .gz or .xz).")]
Target = Annotated[
    list[Path] | None, typer.Option(help="Target text, line by line; one file per --source, in the same order.")
]
File = Annotated[
    list[Path] | None, typer.Option("--file", help="Instead of the two: a .tsv, .csv or .jsonl file with both sides.")
]
SourceField = Annotated[
    str | None, typer.Option(help="Source column of --file by number or name, or .jsonl field; default: 1 or source.")
]
TargetField = Annotated[str | None, typer.Option(help="The same for the target; default: 2 or target.")]
ValidSource = Annotated[
    list[Path] | None, typer.Option(help="Source text for validation; default: some pairs are held out.")
]
ValidTarget = Annotated[list[Path] | None, typer.Option(help="Target text for validation, line by line.")]
Text = Annotated[
    list[Path] | None,
    typer.Option(help="Instead of pairs: running text or .jsonl, for a decoder-only model."),
]
Field = Annotated[str | None, typer.Option(metavar="NAME", help="Field of a .jsonl file of --text; default: text.")]
MaxBadRatio = Annotated[
    float | None, typer.Option(min=0, max=1, help="Largest share of bad lines to skip; default: 0.01.")
]
Preset = Annotated[
    str | None, typer.Option(help="Network size: tiny, small, base, big, paper; default: chosen from the data.")
]


def train(
    run_file: RunFile = None,
    source: Source = None,
    target: Target = None,
    file: File = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    text: Text = None,
    field: Field = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; the model is written to its model/ folder.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the files named in the run file.")] = None,
    max_bad_ratio: MaxBadRatio = None,
    preset: Preset = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Total updates; default: chosen from the data.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Instead of --steps: passes over the data.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume the run in this folder.")] = None,
    override: Annotated[
        bool, typer.Option("--override", help="With --resume: allow settings (--set) that differ from the run's.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")] = False,
    stop_at: Annotated[int | None, typer.Option(min=1, help="Save and stop after this step, to resume later.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print all resolved settings, then exit.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard too.")] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a model on parallel text, or on running text.

    From a run file, or from parallel text: attendo train --source a.en --target a.de --out runs/x; attendo train
    pairs.tsv. A decoder-only model needs running text: attendo train --text a.txt --out runs/x

    Settings you leave out are chosen from the data and printed. Ctrl-C saves. --resume continues bit for bit.
    """
    from attendo.runs.config import load_run_config
    from attendo.runs.run_folder import check_free

    check_ahead(device, tensorboard)
    names: dict[str, Any] = {"source": source, "target": target, "file": file, "source_field": source_field}
    names |= {"target_field": target_field, "valid_source": valid_source, "valid_target": valid_target}
    names |= {"text": text, "text_field": field, "folder": data}
    options = {"--max-bad-ratio": ("data.max_bad_ratio", max_bad_ratio), "--preset": ("preset", preset)}
    options |= {"--epochs": ("train.epochs", epochs)}
    changes = merge_changes(change, {**options, "--steps": ("train.steps", steps)})
    folder = out or Path("runs") / _stem(run_file or Path())
    if resume is not None:
        refuse_with_resume(
            {"RUN.toml": run_file, "--out": out, "--overwrite": overwrite, **to_option_names(names), **options}
        )
        config = load_resumed_config(resume, changes, override)
    else:
        check_free(folder, overwrite or show)  # fail before reading the text
        config = make_config(run_file, names, changes, needs_out=out is None and not show)
    if show:
        _print_settings(config or load_run_config(resume or Path()))
        return

    place = (resume, None) if resume is not None else (None, folder)
    _train(config, place, device, overwrite, stop_at, tensorboard)


def _train(
    config: "RunConfig | None",
    run_folders: tuple[Path | None, Path | None],
    device: str,
    overwrite: bool,
    stop_at: int | None,
    tensorboard: bool,
) -> None:
    """Train. `run_folders` is the folder of the run to resume, and the folder of a new run; one is None."""
    from attendo.cli.progress import report_end, run_training
    from attendo.runs.report_sinks import TensorBoard
    from attendo.runs.run import Run
    from attendo.text_model import pick_device
    from attendo.train.distributed import init_distributed

    old, new = run_folders
    with init_distributed(pick_device(device)) as (world, own_device):
        if old is not None:
            run = Run.resume(old, own_device, world, config)
        else:
            assert config is not None
            assert new is not None
            run = Run.begin(config, new, own_device, overwrite, world)
        run.sinks += [TensorBoard()] if tensorboard else []
        done = run_training(run, stop_at)
    report_end(done)
    done.print_line(f"next: attendo generate {done.model_folder} < text")


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
        print(line, file=sys.stderr)
    for choice in new.choices if speaks else ():
        if choice.name.startswith(shown_prefix):
            (report or _report)(f"{choice.name} = {toml_literal(choice.value)}  # {choice.reason}")
    return new.config


def _report(line: str) -> None:
    print(line, file=sys.stderr)


def check_ahead(device: str, tensorboard: bool = False) -> None:
    """Raise an error for a missing device or package before text is read."""
    if device != "auto":  # auto always exists, and resolving it imports torch
        from attendo.text_model import pick_device

        pick_device(device)
    if tensorboard:
        require_package("tensorboard", "tensorboard", "TensorBoard logging")


def _print_settings(config: "RunConfig") -> None:
    from attendo.runs.config_reference import format_resolved_config
    from attendo.runs.new_run import load_text_settings

    print(format_resolved_config(config, load_text_settings(config.data)), end="")


def merge_changes(changes: Sequence[str] | None, options: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return the changes of --set and of options that change one setting. `options`: option → setting and value."""
    changes = changes or []
    given = {option: (name, value) for option, (name, value) in options.items() if value is not None}
    for option, (name, _) in given.items():
        if any(change.partition("=")[0].strip() == name for change in changes):
            raise UsageError("setting_given_twice", option=option, setting=name)
    return [*changes, *(f"{name}={value}" for name, value in given.values())]


def to_option_names(files: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of [data] by option name."""
    other = {"text_field": "--field", "folder": "--data"}
    return {other.get(name, f"--{name.replace('_', '-')}"): value for name, value in files.items()}


def refuse_with_resume(options: Mapping[str, Any]) -> None:
    given = [name for name, value in options.items() if (value[1] is not None if isinstance(value, tuple) else value)]
    if given:
        raise UsageError("options_with_resume", options=", ".join(given))


def _stem(path: Path) -> str:
    """Return the default name of a run folder: "words" for words.tsv.gz."""
    return path.name.removesuffix("".join(path.suffixes[-2:] if path.suffix in (".gz", ".xz") else path.suffixes[-1:]))


def load_resumed_config(folder: Path, changes: Sequence[str], override: bool) -> "RunConfig | None":
    """Return the settings that replace the run's own, or None if they do not change."""
    from attendo.runs.config import list_differences, load_run_config

    if not (folder / "run.toml").is_file():
        raise UsageError("resume_run_not_found", folder=folder)
    config = load_run_config(folder, changes)
    if override:
        return config
    if other := list_differences(load_run_config(folder), config):
        raise UsageError("resume_settings_differ", folder=folder, settings=", ".join(other))
    return None
