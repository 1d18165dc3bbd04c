"""Solutions of page 4."""

from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, L, d_model] -> [B, h, L, d_k]"""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """[B, h, L, d_k] -> [B, L, d_model]"""
    return heads.transpose(1, 2).flatten(2)
