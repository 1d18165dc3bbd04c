"""Exercises of page 5. Replace each `raise`, then run `python check.py 5`."""

from collections.abc import Callable

from torch import Tensor


def decoder_mask(target: Tensor) -> Tensor:
    """Ids [B, T] with padding 0 give a mask [B, T, T]: True where something is hidden.

    由填充为 0 的编号 [B, T] 得到掩码 [B, T, T]：True 表示遮住。
    """
    raise NotImplementedError


def leaks(model: Callable[[Tensor], Tensor], ids: Tensor) -> bool:
    """`model` takes ids [1, T] and gives [1, T, V]. True if an output depends on a later token.

    `model` 由编号 [1, T] 得到 [1, T, V]。如果某个输出取决于后面的词元，返回 True。
    """
    raise NotImplementedError
