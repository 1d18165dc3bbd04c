"""Exercises of page 3. Replace each `raise`, then run `python check.py 3`."""

from torch import Tensor


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """[..., T, d_k], [..., S, d_k] and [..., S, d_v] give the weights [..., T, S] and the output [..., T, d_v].

    由 [..., T, d_k]、[..., S, d_k] 和 [..., S, d_v] 得到权重 [..., T, S] 和输出 [..., T, d_v]。
    """
    raise NotImplementedError


def softmax_gradient(y: Tensor) -> Tensor:
    """The output [n] of a softmax gives its derivatives [n, n]: row i has those of y_i.

    由 softmax 的输出 [n] 得到它的导数 [n, n]：第 i 行是 y_i 的导数。
    """
    raise NotImplementedError
