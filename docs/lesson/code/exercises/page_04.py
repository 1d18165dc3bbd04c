"""Exercises of page 4. Replace each `raise`, then run `python check.py 4`."""

from torch import Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, L, d_model] -> [B, h, L, d_k]"""
    raise NotImplementedError


def merge_heads(heads: Tensor) -> Tensor:
    """[B, h, L, d_k] -> [B, L, d_model]"""
    raise NotImplementedError
