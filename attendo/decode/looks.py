"""Whether sentences are done, asked of the device without waiting for it."""

from collections import deque
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

BEHIND = 2  # steps that a GPU may be ahead of what the host has seen: enough to be busy, few enough to waste little


@dataclass(frozen=True)
class Look:
    """As things stood after a step."""

    step: int
    is_open: list[bool]


class Looks:
    """Noted after every step; on a GPU they are told two steps later, when they have arrived by themselves.

    They travel beside the steps, which do not wait for them. So a look may show a later step than the one it is named
    after, never an earlier one.
    """

    def __init__(self, device: torch.device, count: int, behind: int | None = None) -> None:
        self._on_gpu = device.type == "cuda"
        self._behind = (BEHIND if self._on_gpu else 0) if behind is None else behind
        self._step = 0
        self._noted: deque[tuple[int, Tensor, torch.cuda.Event | None]] = deque()
        self._aside = torch.cuda.Stream(device) if self._on_gpu else None
        self._room = [torch.empty(count, dtype=torch.bool, pin_memory=self._on_gpu) for _ in range(self._behind + 1)]

    def note(self, is_open: Bool[Tensor, " B"]) -> None:
        self._step += 1
        here, arrived = self._room[self._step % len(self._room)], None
        if self._aside is not None:
            self._aside.wait_stream(torch.cuda.current_stream(self._aside.device))
            arrived = torch.cuda.Event()
        with torch.cuda.stream(self._aside):
            here.copy_(is_open, non_blocking=True)
            if arrived is not None:
                arrived.record()
        self._noted.append((self._step, here, arrived))

    @property
    def step(self) -> int:
        """The last one noted."""
        return self._step

    def oldest(self) -> Look | None:
        """What has not been told yet, as soon as it may be waited for."""
        if len(self._noted) <= self._behind:
            return None
        step, here, arrived = self._noted.popleft()
        if arrived is not None:
            arrived.synchronize()
        return Look(step, here.tolist())
