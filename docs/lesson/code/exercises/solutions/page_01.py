"""Solutions of page 1."""

import math

from torch import Tensor


def shift(target: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows from BOS to EOS, padded: what the decoder reads, and the labels."""
    return [row[:-1] for row in target], [row[1:] for row in target]


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """[B, T] and [V, d_model] give [B, T, d_model]: the rows of the ids, scaled."""
    return table[ids] * math.sqrt(table.size(1))
