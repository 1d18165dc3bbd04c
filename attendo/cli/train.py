"""`attendo train`: text to a model folder, or a run that goes on where it stopped."""

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
    typer.Argument(metavar="RUN.toml", help="Settings of the run; or a .tsv, .csv or .jsonl file with both sides."),
]
Source = Annotated[list[Path] | None, typer.Option(help="Source text, one sentence a line (plain, .gz or .xz).")]
Target = Annotated[
    list[Path] | None, typer.Option(help="Target text, line by line beside it; as many as --source, in its order.")
]
File = Annotated[
    list[Path] | None, typer.Option("--file", help="Instead of the two: a .tsv, .csv or .jsonl file with both sides.")
]
SourceField = Annotated[
    str | None, typer.Option(help="Column of --file by number or name, or field of a .jsonl; 1 or source unless given.")
]
TargetField = Annotated[str | None, typer.Option(help="The same for the target; 2 or target unless given.")]
ValidSource = Annotated[
    list[Path] | None, typer.Option(help="Source text to validate with; some pairs are kept back unless given.")
]
ValidTarget = Annotated[list[Path] | None, typer.Option(help="Target text, line by line beside it.")]
Text = Annotated[
    list[Path] | None,
    typer.Option(help="Instead of pairs: running text or .jsonl, for a decoder-only model that continues text."),
]
Field = Annotated[str | None, typer.Option(metavar="NAME", help="Field of a .jsonl file of --text; text unless given.")]
MaxBadRatio = Annotated[
    float | None, typer.Option(min=0, max=1, help="Share of lines that may be left out as bad; 0.01 unless set.")
]
Preset = Annotated[
    str | None, typer.Option(help="Size of the network: tiny, small, base, big, paper; chosen unless given.")
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
    out: Annotated[Path | None, typer.Option(help="Run folder; the model goes to its model/.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder that the files of the run file are in.")] = None,
    max_bad_ratio: MaxBadRatio = None,
    preset: Preset = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates in all; chosen unless given.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Instead of --steps: how often to go through the data.")] = None,
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
    threads: Threads = None,
) -> None:
    """Train a model on parallel text, or on running text.

    Either from a run file, or from text: attendo train --source a.en --target a.de --out runs/x; attendo train
    pairs.tsv; or from text that is to be continued: attendo train --text a.txt --out runs/x

    What is left open is chosen from the data and printed. Ctrl-C saves; --resume goes on, bit for bit.
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
        check_free(folder, overwrite or show)  # before much text is read for nothing
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
    """`run_folders` is the folder of the run to resume, or that of a new one."""
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
    """The settings of a new run, those left open chosen from its data; choices that begin with `shown_prefix` are told.

    `report` gets each as a line; they go to standard error without it.
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
    speaks = os.environ.get("RANK", "0") == "0"  # of several processes one speaks
    for line in describe_files(new.config.data) if speaks and files.get("file") else ():
        print(line, file=sys.stderr)
    for choice in new.choices if speaks else ():
        if choice.name.startswith(shown_prefix):
            (report or _report)(f"{choice.name} = {toml_literal(choice.value)}  # {choice.reason}")
    return new.config


def _report(line: str) -> None:
    print(line, file=sys.stderr)


def check_ahead(device: str, tensorboard: bool = False) -> None:
    """A device or package that is not there is told before text is read."""
    if device != "auto":  # which is always there, and takes torch to find
        from attendo.text_model import pick_device

        pick_device(device)
    if tensorboard:
        require_package("tensorboard", "tensorboard", "writing for TensorBoard")


def _print_settings(config: "RunConfig") -> None:
    from attendo.runs.config_reference import format_resolved_config
    from attendo.runs.new_run import load_text_settings

    print(format_resolved_config(config, load_text_settings(config.data)), end="")


def merge_changes(changes: Sequence[str] | None, options: Mapping[str, tuple[str, Any]]) -> list[str]:
    """The changes of --set, and those that have an option of their own: its setting, and the value given."""
    changes = changes or []
    given = {option: (name, value) for option, (name, value) in options.items() if value is not None}
    for option, (name, _) in given.items():
        if any(change.partition("=")[0].strip() == name for change in changes):
            raise UsageError("setting_given_twice", option=option, setting=name)
    return [*changes, *(f"{name}={value}" for name, value in given.values())]


def to_option_names(files: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of [data] by the names of their options."""
    other = {"text_field": "--field", "folder": "--data"}
    return {other.get(name, f"--{name.replace('_', '-')}"): value for name, value in files.items()}


def refuse_with_resume(options: Mapping[str, Any]) -> None:
    given = [name for name, value in options.items() if (value[1] is not None if isinstance(value, tuple) else value)]
    if given:
        raise UsageError("options_with_resume", options=", ".join(given))


def _stem(path: Path) -> str:
    """words of words.tsv.gz: what the run folder is called unless it is given."""
    return path.name.removesuffix("".join(path.suffixes[-2:] if path.suffix in (".gz", ".xz") else path.suffixes[-1:]))


def load_resumed_config(folder: Path, changes: Sequence[str], override: bool) -> "RunConfig | None":
    """The settings that replace the run's own; None where they stay."""
    from attendo.runs.config import list_differences, load_run_config

    if not (folder / "run.toml").is_file():
        raise UsageError("resume_run_not_found", folder=folder)
    config = load_run_config(folder, changes)
    if override:
        return config
    if other := list_differences(load_run_config(folder), config):
        raise UsageError("resume_settings_differ", folder=folder, settings=", ".join(other))
    return None
