"""Exercises of page 10. Replace each `raise`, then run `python check.py 10`."""

from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """[B, T, V] and [B, T] with padding 0 give the mean over the counted tokens.

    由 [B, T, V] 和填充为 0 的 [B, T] 得到计入的词元的平均。
    """
    raise NotImplementedError


def learning_rate(step: int, d_model: int, warmup: int) -> float:
    """The learning rate of the paper at a step, counted from 1.

    论文在某一步的学习率，步数从 1 开始。
    """
    raise NotImplementedError
