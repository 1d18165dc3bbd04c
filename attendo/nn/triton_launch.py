"""Chooses between Triton kernels and PyTorch, and launches the kernels."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # installed with torch for GPUs


def runs_kernels(tensor: Tensor) -> bool:
    """Return whether kernels compute on this tensor. They compute in float32, so float64 is left to PyTorch."""
    return HAS_TRITON and tensor.is_cuda and tensor.dtype != torch.float64


def launch(kernel: Any, programs: tuple[int, ...], *arguments: Any, **sizes: Any) -> None:
    """Run the kernel on the GPU of its first argument. Triton itself runs it on the current GPU."""
    with torch.cuda.device_of(arguments[0]):
        kernel[programs](*arguments, **sizes)


def next_power_of_2(number: int) -> int:
    """Return the next power of 2, at least 16. Smaller blocks are not faster."""
    return max(16, 1 << (number - 1).bit_length())
