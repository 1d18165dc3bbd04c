"""Solutions of page 10."""

from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """[B, T, V] and [B, T] with padding 0 give the mean over the counted tokens."""
    log_p = logits.log_softmax(-1)[labels != 0]
    right = log_p.gather(1, labels[labels != 0][:, None])[:, 0]
    return -((1 - epsilon) * right + epsilon * log_p.mean(-1)).mean()


def learning_rate(step: int, d_model: int, warmup: int) -> float:
    """The learning rate of the paper at a step, counted from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
