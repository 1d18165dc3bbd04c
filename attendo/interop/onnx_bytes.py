"""Matrices in bytes whose products are exact on every processor.

x86 processors without VNNI multiply unsigned by signed bytes and add each two neighbours in 16 bits, which holds up to
32,767: 255 · 127 + 255 · 127 overflows, in silence. What overflows are two large weights of the same sign side by side,
and these are rare. So a column's step is as small as its largest weight allows, and as its largest pair does.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_MOST, _PAIR = 127, 127.9  # rounded, a pair is at most 128, and 255 · 128 < 2¹⁵


def steps_of(matrix: Float[Tensor, "N K"]) -> Float[Tensor, "N 1"]:
    """How much 1 stands for in the bytes of each row, which is what one component of the product is made of."""
    pairs = F.pad(matrix, (0, matrix.size(1) % 2)).unflatten(1, (-1, 2)).sum(-1)
    largest, largest_pair = (each.abs().amax(1, keepdim=True) for each in (matrix, pairs))
    return (largest / _MOST).maximum(largest_pair / _PAIR).clamp(min=1e-30)
