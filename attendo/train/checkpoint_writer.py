"""Checkpoints written by a thread: training goes on as soon as the state is copied to host memory.

The thread does what a save without it does, in the same order: files, fsync, rename, then pruning. A checkpoint is
reported when it is durable. At most one is being written: the next save waits for it, so host memory holds one copy.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor

from attendo.train.checkpoint import Snapshot

Write = Callable[[Snapshot], Path]


class CheckpointWriter:
    """Writes at most one checkpoint at a time in a thread."""

    def __init__(self) -> None:
        self.step: int | None = None  # of the checkpoint that is not reported yet
        self._thread: Thread | None = None
        self._folder: Path | None = None
        self._error: Exception | None = None
        self._pinned: dict[str, Tensor] = {}  # host memory that a GPU copies to, reused by the next save

    @property
    def is_done(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def start(self, snapshot: Snapshot, write: Write) -> None:
        """Copy the snapshot and write the copy in a thread. The caller may then change the tensors."""
        assert self._thread is None, "fetch the earlier result first"
        copied = replace(
            snapshot,
            model=self._copy_all("model", snapshot.model),
            optimizer=self._copy_all("optimizer", snapshot.optimizer),
            random=self._copy_all("random", snapshot.random),
        )
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        self.step, self._folder, self._error = snapshot.step, None, None
        # A daemon: after a second signal the process ends at once, and leaves what a crash would leave.
        self._thread = Thread(target=self._run, args=(copied, write), name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the checkpoint is durable or has failed. The result is kept."""
        if self._thread is not None:
            self._thread.join()

    def fetch(self) -> Path:
        """Wait, and return the folder of the checkpoint or raise the error of its writer."""
        self.wait()
        self._thread = None
        if self._error is not None:
            raise self._error
        assert self._folder is not None
        return self._folder

    def _run(self, snapshot: Snapshot, write: Write) -> None:
        try:
            self._folder = write(snapshot)
        except Exception as error:  # raised by `fetch`
            self._error = error

    def _copy_all(self, part: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._copy(f"{part}/{name}", tensor.detach()) for name, tensor in tensors.items()}

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_cuda:
            return tensor.clone()
        pinned = self._pinned.get(name)
        if pinned is None:  # pinned memory takes longer to allocate than to fill, so it is kept
            pinned = self._pinned[name] = torch.empty_like(tensor, device="cpu", pin_memory=True)
        return pinned.copy_(tensor, non_blocking=True)
