"""Exercises of page 2. Replace each `raise`, then run `python check.py 2`."""

from torch import Tensor


def position_table(length: int, d_model: int) -> Tensor:
    """[length, d_model]: sine in the even columns, cosine in the odd ones.

    [length, d_model]：偶数列是正弦，奇数列是余弦。
    """
    raise NotImplementedError


def move(vector: Tensor, k: int) -> Tensor:
    """The vector [d_model] of a position gives that of the position k further.

    由一个位置的向量 [d_model] 得到往后 k 个位置的向量。
    """
    raise NotImplementedError
