"""Options that several commands have, and groups of options."""

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

HARDWARE = "Hardware"  # section of the help


def _set_threads(threads: int | None) -> int | None:
    """Set OMP_NUM_THREADS, which torch and child processes read at start-up."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(threads)
    return threads


Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        callback=_set_threads,
        show_default=False,
        rich_help_panel=HARDWARE,
        help="Number of CPU threads; default: OMP_NUM_THREADS, or the fastest number, found by timing.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=HARDWARE)]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")]
Data = Annotated[Path | None, typer.Option(help="Folder of the files named in the run file.")]
Source = Annotated[list[Path] | None, typer.Option(help="Source text, one sentence per line (plain, .gz or .xz).")]
Target = Annotated[
    list[Path] | None, typer.Option(help="Target text, line by line; one file per --source, in the same order.")
]
RunFile = Annotated[
    Path | None,
    typer.Argument(metavar="RUN.toml", help="Run file; or a .tsv, .csv or .jsonl file with source and target."),
]
MaxBadRatio = Annotated[
    float | None, typer.Option(min=0, max=1, help="Largest share of bad lines to skip; default: 0.01.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonCertificate = Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model.")]
ModelOrExport = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model, or an exported folder.")
]


@dataclass(frozen=True)
class TextOptions:
    """The text of a new run. The names are those of the table [data]."""

    source: Source = None
    target: Target = None
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", help="Instead of the two: a .tsv, .csv or .jsonl file with both sides."),
    ] = None
    source_field: Annotated[
        str | None,
        typer.Option(help="Source column of --file by number or name, or .jsonl field; default: 1 or source."),
    ] = None
    target_field: Annotated[str | None, typer.Option(help="The same for the target; default: 2 or target.")] = None
    valid_source: Annotated[
        list[Path] | None, typer.Option(help="Source text for validation; default: some pairs are held out.")
    ] = None
    valid_target: Annotated[list[Path] | None, typer.Option(help="Target text for validation, line by line.")] = None
    text: Annotated[
        list[Path] | None, typer.Option(help="Instead of pairs: running text or .jsonl, for a decoder-only model.")
    ] = None
    text_field: Annotated[
        str | None, typer.Option("--field", metavar="NAME", help="Field of a .jsonl file of --text; default: text.")
    ] = None


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose type is a dataclass by one option per field, in the same place."""
    own = inspect.signature(command).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    options = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options[name]})
        command(**given)

    expanded = [each for name in own for each in options.get(name, {name: own[name]}).values()]
    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in expanded]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
