"""Work of a GPU recorded as a CUDA graph."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def recorded_into(graph: Any, **options: Any) -> Iterator[None]:
    """What is done inside is not done but noted. Other threads may use the GPU meanwhile.

    No garbage is collected then: a forgotten graph or pinned memory, freed in this thread, would spoil the recording.
    """
    with _no_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
