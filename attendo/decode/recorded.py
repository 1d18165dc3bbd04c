"""A step recorded as a CUDA graph and replayed: a GPU then need not wait for the host to ask for each kernel."""

from collections.abc import Callable

import torch

_WARM_UP = 3  # runs before the recording: libraries set themselves up in them, which cannot be recorded


def recorded(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Does what `step` does, which must read and write nothing but tensors that stay where they are.

    It is run a few times first, so nothing may depend on what those tensors hold at this moment.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream(device).wait_stream(stream)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return graph.replay
