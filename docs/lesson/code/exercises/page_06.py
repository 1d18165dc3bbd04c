"""Exercises of page 6. Replace each `raise`, then run `python check.py 6`."""

from torch import Tensor


def cross_mask(target: Tensor, source: Tensor) -> Tensor:
    """Ids [B, T] and [B, S] with padding 0 give a mask [B, T, S]: True where something is hidden.

    由填充为 0 的编号 [B, T] 和 [B, S] 得到掩码 [B, T, S]：True 表示遮住。
    """
    raise NotImplementedError


def alignment(maps: Tensor) -> list[int]:
    """The weights [h, T, S] give, for each row, the source position with the largest mean of the heads.

    由权重 [h, T, S] 得到：每一行各头平均权重最大的源位置。
    """
    raise NotImplementedError
