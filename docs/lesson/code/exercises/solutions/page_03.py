"""Solutions of page 3."""

import math

import torch
from torch import Tensor


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """[..., T, d_k], [..., S, d_k] and [..., S, d_v] give the weights [..., T, S] and the output [..., T, d_v]."""
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.size(-1))
    weights = scores.softmax(-1)
    return weights, weights @ values


def softmax_gradient(y: Tensor) -> Tensor:
    """The output [n] of a softmax gives its derivatives [n, n]: row i has those of y_i."""
    return torch.diag(y) - y[:, None] * y[None, :]
