"""Exercises of page 8. Replace each `raise`, then run `python check.py 8`."""

from collections.abc import Callable

from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Normalise [..., d] over the last axis, then scale by `gain` [d] and add `bias` [d].

    在最后一维上归一化 [..., d]，再乘以 `gain` [d]，加上 `bias` [d]。
    """
    raise NotImplementedError


def residual(x: Tensor, sublayer: Layer, norm: Layer, pre_norm: bool) -> Tensor:
    """One sub-layer with its residual connection, without dropout.

    带残差连接的一个子层，不含 dropout。
    """
    raise NotImplementedError
