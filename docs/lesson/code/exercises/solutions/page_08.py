"""Solutions of page 8."""

from collections.abc import Callable

from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Normalise [..., d] over the last axis, then scale by `gain` [d] and add `bias` [d]."""
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return gain * centred / (variance + epsilon).sqrt() + bias


def residual(x: Tensor, sublayer: Layer, norm: Layer, pre_norm: bool) -> Tensor:
    """One sub-layer with its residual connection, without dropout."""
    return x + sublayer(norm(x)) if pre_norm else norm(x + sublayer(x))
