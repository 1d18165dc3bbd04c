"""Exercises of page 14. Replace each `raise`, then run `python check.py 14`."""

from torch import Tensor


def prefix_mask(length: int, prefix: int) -> Tensor:
    """[length, length]: True where something is hidden. The first `prefix` positions see each other.

    [length, length]：True 表示遮住。前 `prefix` 个位置互相可见。
    """
    raise NotImplementedError


def prompt_and_labels(prompt: list[int], answer: list[int]) -> tuple[list[int], list[int]]:
    """The input and the labels of prompt and answer in one row, shifted. Labels inside the prompt are -100.

    把提示和答案放在一行，返回右移后的输入和标签。提示内部的标签是 -100。
    """
    raise NotImplementedError
