"""The option `--threads` of every command that computes on a CPU."""

import os
import sys
from typing import Annotated

import typer


def _set_threads(threads: int | None) -> int | None:
    """torch reads the variable when it is imported, and so do the processes that a command starts."""
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
        help="Number of CPU threads; by default the fastest number, found by timing, or OMP_NUM_THREADS.",
    ),
]
