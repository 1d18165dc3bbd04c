"""The `--threads` option of every command that computes on a CPU."""

import os
import sys
from typing import Annotated

import typer


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
        help="Number of CPU threads; default: OMP_NUM_THREADS, or the fastest number, found by timing.",
    ),
]
