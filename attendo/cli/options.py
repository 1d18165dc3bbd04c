"""Options that several commands have."""

import os
import sys
from pathlib import Path
from typing import Annotated

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
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model.")]
ModelOrExport = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model folder, such as runs/demo/model, or an exported folder.")
]
