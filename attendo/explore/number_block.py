"""Arrays of numbers for the page, in one block of base64."""

import base64
from typing import Any

import torch
from torch import Tensor


class NumberBlock:
    """Arrays of float16 numbers in one block of base64."""

    def __init__(self) -> None:
        self._parts = [torch.zeros(0)]
        self._length = 0

    def add(self, values: Tensor) -> dict[str, Any]:
        """Append an array. Return its shape, and the index of its first number."""
        place = {"shape": list(values.shape), "offset": self._length}
        self._parts.append(values.flatten().float().cpu())
        self._length += values.numel()
        return place

    def encode(self) -> str:
        numbers = torch.cat(self._parts).to(torch.float16).numpy().astype("<f2")
        return base64.b64encode(numbers.tobytes()).decode("ascii")
