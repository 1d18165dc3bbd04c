"""Exercises of page 11. Replace each `raise`, then run `python check.py 11`."""

from collections.abc import Callable

from torch import Tensor

Model = Callable[[list[int]], list[float]]


def greedy(model: Model, bos: int, eos: int, max_new: int) -> list[int]:
    """`model` takes the prefix from BOS and gives the probability of each next token.

    `model` 读入从 BOS 开始的前缀，给出每个词元接在后面的概率。
    """
    raise NotImplementedError


def beam(model: Model, bos: int, eos: int, width: int, max_new: int) -> tuple[list[int], float]:
    """The finished sentence with the largest sum of log-probabilities, without BOS and EOS, and this sum.

    返回对数概率之和最大的已结束的句子（不含 BOS 和 EOS），以及这个和。
    """
    raise NotImplementedError


def top_p(probabilities: Tensor, p: float) -> Tensor:
    """[V]: the fewest most probable tokens that reach p together, renormalised; the others are 0.

    [V]：合起来达到 p 的最少几个最可能的词元，重新归一化；其余为 0。
    """
    raise NotImplementedError
