"""Solutions of page 2."""

import torch
from torch import Tensor


def position_table(length: int, d_model: int) -> Tensor:
    """[length, d_model]: sine in the even columns, cosine in the odd ones."""
    frequency = 10000 ** (-torch.arange(0, d_model, 2) / d_model)
    angle = torch.arange(length)[:, None] * frequency
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def move(vector: Tensor, k: int) -> Tensor:
    """The vector [d_model] of a position gives that of the position k further."""
    frequency = 10000 ** (-torch.arange(0, len(vector), 2) / len(vector))
    sine, cosine = vector.unflatten(0, (-1, 2)).unbind(1)
    turn = k * frequency
    moved = sine * turn.cos() + cosine * turn.sin(), cosine * turn.cos() - sine * turn.sin()
    return torch.stack(moved, dim=1).flatten()
