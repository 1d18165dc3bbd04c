"""Exercises of page 1. Replace each `raise`, then run `python check.py 1`."""

from torch import Tensor


def shift(target: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows from BOS to EOS, padded: what the decoder reads, and the labels.

    从 BOS 到 EOS、补齐过的各行：返回解码器的输入和标签。
    """
    raise NotImplementedError


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """[B, T] and [V, d_model] give [B, T, d_model]: the rows of the ids, scaled.

    由 [B, T] 和 [V, d_model] 得到 [B, T, d_model]：编号对应的行，并放大。
    """
    raise NotImplementedError
