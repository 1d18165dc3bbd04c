"""Work of a GPU recorded as a CUDA graph."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class CudaGraphRecorder:
    """Records work that adds to gradients, of which one piece runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()  # shared: only one recording runs at a time
        # What is not replayed runs where it is recorded: autograd sums gradients on the stream on which it first met a
        # weight, and a recording cannot reach out to another one.
        self._stream = torch.cuda.Stream(device)

    def run(self, work: Callable[[], None]) -> None:
        """As it comes."""
        now = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()
        now.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Does nothing but note it. What is returned does the work."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)  # nothing may be under way on other streams
        with capture_graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay


@contextmanager
def capture_graph(graph: Any, **options: Any) -> Iterator[None]:
    """What is done inside is not done but noted. Other threads may use the GPU meanwhile.

    No garbage is collected then: a forgotten graph or pinned memory, freed in this thread, would spoil the recording.
    """
    with _pause_gc(), torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
        yield


@contextmanager
def _pause_gc() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
