"""Forward and backward recorded once for each shape of batch, and replayed: a small network then no longer waits for
the host, which takes longer to ask for a kernel than a GPU to run it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attendo.data.batch import Batch
from attendo.nn.cuda_graph import recorded_into

_MOST_GRAPHS = 2000  # beyond them a batch of a new shape runs as it comes
_WARM_UP = 5  # passes before the first recording: libraries set themselves up in them, which cannot be recorded

Shape = tuple[torch.Size | None, ...]


@dataclass(frozen=True)
class Recording:
    """A recorded pass reads its batch from the same memory every time."""

    graph: "torch.cuda.CUDAGraph"
    batch: Batch

    def replay(self, batch: Batch) -> None:
        for here, there in zip(tensors(self.batch), tensors(batch), strict=True):
            if here is not None and there is not None:
                here.copy_(there, non_blocking=True)
        self.graph.replay()


class CapturedPasses:
    """Does what `learn` does, after a few passes by recording it once for each shape of batch.

    `learn` must read nothing but its batch and tensors that stay where they are, and must not wait for the device.
    """

    def __init__(self, learn: Callable[[Batch], None], device: torch.device) -> None:
        self._learn, self._device = learn, device
        self._passes = 0
        self._recordings: dict[Shape, Recording] = {}
        self._memory = torch.cuda.graph_pool_handle()  # shared: only one recording runs at a time
        # Passes that are not replayed run where they are recorded: autograd sums gradients on the stream on which it
        # first met a weight, and a recording cannot reach out to another one.
        self._stream = torch.cuda.Stream(device)

    def __call__(self, batch: Batch) -> None:
        self._passes += 1
        shape = tuple(None if each is None else each.shape for each in tensors(batch))
        if shape not in self._recordings:
            if self._passes <= _WARM_UP or len(self._recordings) == _MOST_GRAPHS:
                self._run(batch)
                return
            self._recordings[shape] = self._record(batch)
        self._recordings[shape].replay(batch)

    def _run(self, batch: Batch) -> None:
        now = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            self._learn(batch)
        now.wait_stream(self._stream)

    def _record(self, batch: Batch) -> Recording:
        batch = batch.to(self._device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)  # nothing may be under way on other streams
        with recorded_into(graph, pool=self._memory, stream=self._stream):
            self._learn(batch)
        return Recording(graph, batch)


def tensors(batch: Batch) -> tuple[Tensor | None, ...]:
    return batch.source_ids, batch.source_mask, batch.target_ids, batch.labels
