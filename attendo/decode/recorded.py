"""Work recorded as a CUDA graph and replayed: a GPU then need not wait for the host to ask for each kernel."""

from collections.abc import Callable

import torch

from attendo.nn.cuda_graph import recorded_into

_AS_IT_COMES = 3  # calls before the recording: libraries set themselves up in them, which cannot be recorded


class Recorded:
    """Does what `work` does, which must read and write nothing but tensors that stay where they are."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        self._work, self._device = work, device
        self._calls = 0
        self._replay: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._replay is None and self._calls >= _AS_IT_COMES and self._device.type == "cuda":
            self._replay = self._recorded()
        self._calls += 1
        (self._replay or self._work)()

    def _recorded(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), recorded_into(graph):
            self._work()
        return graph.replay
