"""Exercises of page 13. Replace each `raise`, then run `python check.py 13`."""


def merge(row: list[int], blank: int) -> list[int]:
    """What a row of a CTC model says.

    CTC 模型的一行说了什么。
    """
    raise NotImplementedError


def mask_again(confidences: list[float], n: int) -> list[int]:
    """The n positions that the next pass of mask-predict hides, in order.

    mask-predict 下一遍要遮住的 n 个位置，按顺序。
    """
    raise NotImplementedError
