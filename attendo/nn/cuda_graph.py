"""Capture of GPU work as CUDA graphs."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class CudaGraphRecorder:
    """Captures work that accumulates gradients. Only one graph runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()  # shared, because only one graph runs at a time
        # Eager work uses the capture stream too. Autograd accumulates a gradient on the stream that first used the
        # weight, and a capture cannot depend on another stream.
        self._stream = torch.cuda.Stream(device)

    def run(self, work: Callable[[], None]) -> None:
        """Run the work eagerly on the capture stream."""
        now = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            work()
        now.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture the work without running it, and return a function that runs it."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)  # no other stream may have pending work
        with capture_graph(graph, pool=self._pool, stream=self._stream):
            work()
        return graph.replay


@contextmanager
def capture_graph(graph: Any, **options: Any) -> Iterator[None]:
    """Capture the GPU work of the context without running it. Other threads may use the GPU at the same time.

    Garbage collection is paused. Freeing an old graph or pinned memory in this thread would break the capture.
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
