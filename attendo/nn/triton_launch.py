"""Where Triton kernels run, and the sizes of their blocks."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # installed with torch for GPUs


def runs_kernels(tensor: Tensor) -> bool:
    """Return whether kernels compute on this tensor. They compute in float32, so float64 is left to PyTorch."""
    return HAS_TRITON and tensor.is_cuda and tensor.dtype != torch.float64


def next_power_of_2(number: int) -> int:
    """Return the next power of 2, at least 16. Smaller blocks are not faster."""
    return max(16, 1 << (number - 1).bit_length())
