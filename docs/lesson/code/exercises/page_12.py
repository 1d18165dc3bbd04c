"""Exercises of page 12. Replace each `raise`, then run `python check.py 12`."""

from torch import Tensor, nn


def pack(queries: nn.Linear, keys: nn.Linear, values: nn.Linear) -> tuple[Tensor, Tensor]:
    """The weight [3 d, d] and the bias [3 d] of one layer that gives all three, in this order.

    一个层的权重 [3 d, d] 和偏置 [3 d]，它按这个顺序给出三者。
    """
    raise NotImplementedError


def library_mask(hidden: Tensor) -> Tensor:
    """A mask of the lesson gives one of the library.

    由教程的掩码得到库的掩码。
    """
    raise NotImplementedError
