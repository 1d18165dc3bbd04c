"""Solutions of page 7."""

from torch import Tensor


def feed_forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """max(0, x W1 + b1) W2 + b2, with W1 [d_model, d_ff] and W2 [d_ff, d_model]."""
    return (x @ w1 + b1).relu() @ w2 + b2


def parameters(d_model: int, d_ff: int) -> int:
    """The number of parameters of the feed-forward network."""
    return d_model * d_ff + d_ff + d_ff * d_model + d_model
