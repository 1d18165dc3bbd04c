"""Exercises of page 7. Replace each `raise`, then run `python check.py 7`."""

from torch import Tensor


def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """max(0, x W1 + b1) W2 + b2, with W1 [d_model, d_ff] and W2 [d_ff, d_model].

    max(0, x W1 + b1) W2 + b2，其中 W1 是 [d_model, d_ff]，W2 是 [d_ff, d_model]。
    """
    raise NotImplementedError


def parameters(d_model: int, d_ff: int) -> int:
    """The number of parameters of the feed-forward network.

    前馈网络的参数量。
    """
    raise NotImplementedError
