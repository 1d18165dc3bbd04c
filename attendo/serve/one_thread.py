"""What an exported model leaves to torch stays in one thread.

It is the choice of tokens alone. Threads that share so little wait for each other most of the time: one sentence took
four times as long with two of them, on two cores that others used too.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from attendo.nn.cpu_threads import tune_step
from attendo.text_model import TextModel


@contextmanager
def computing(model: TextModel) -> Iterator[None]:
    """While this thread has the model compute something."""
    threads = torch.get_num_threads()
    exported = model.runtime.name != "torch"
    try:
        if exported:
            torch.set_num_threads(1)
        tuned = not exported and model.device.type == "cpu"
        with tune_step() if tuned else nullcontext(), model.runtime.evaluating():
            yield
    finally:
        if exported:
            torch.set_num_threads(threads)
