"""The largest of many numbers, without sorting them all."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK = 256
_MANY = 4096  # from so many numbers a row the detour pays


def best_of(numbers: Float[Tensor, "B N"], count: int) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """The `count` largest of each row, the largest first, and where they stand."""
    if numbers.size(1) < _MANY or count > numbers.size(1) // _CHUNK:
        best = numbers.topk(count)
        return best.values, best.indices
    return best_by_chunks(numbers, count)


def best_by_chunks(numbers: Float[Tensor, "B N"], count: int) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """The same in one pass over all numbers: the best `count` lie in the `count` chunks with the largest maxima."""
    rows, size = numbers.shape
    padding = -size % _CHUNK
    chunks = torch.nn.functional.pad(numbers, (0, padding), value=float("-inf")).view(rows, -1, _CHUNK)
    likely = chunks.amax(dim=-1).topk(count).indices  # [B, C]
    few = chunks.gather(1, likely[..., None].expand(-1, -1, _CHUNK)).flatten(1)  # [B, C * _CHUNK]
    best = few.topk(count)
    places = likely.gather(1, best.indices // _CHUNK) * _CHUNK + best.indices % _CHUNK
    return best.values, places.clamp(max=size - 1)
