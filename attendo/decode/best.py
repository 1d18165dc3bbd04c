"""The largest of many numbers, without sorting them all."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.decode.frontier import NOTHING

_CHUNK = 256
_MANY = 4096  # from so many numbers a sentence the detour pays


def highest(numbers: Float[Tensor, "R V"]) -> Int[Tensor, " R"]:
    """Where the largest number of each row is, of equals the first."""
    if numbers.is_cuda or torch.compiler.is_compiling():
        return numbers.argmax(dim=-1)
    return torch.from_numpy(numbers.numpy().argmax(-1))  # on a CPU torch looks at one number after the other


def best_of(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """Of each sentence the `count` largest of what its rows have, `added` to all of a row; the largest first.

    Places are counted through all rows of the sentence.
    """
    size = numbers.size(1) * numbers.size(2)
    if size < _MANY or count > numbers.size(1) * (numbers.size(2) // _CHUNK):
        best = (numbers + added[..., None]).flatten(1).topk(count)
        return best.values, best.indices
    return best_by_chunks(numbers, added, count)


def best_by_chunks(
    numbers: Float[Tensor, "B W V"], added: Float[Tensor, "B W"], count: int
) -> tuple[Float[Tensor, "B C"], Int[Tensor, "B C"]]:
    """The same in one pass over all numbers: the best `count` lie in the `count` chunks with the largest maxima."""
    size, inside = numbers.size(2), torch.arange(_CHUNK, device=numbers.device)
    maxima = _maxima(numbers) + added[..., None]  # [B, W, N]
    likely = maxima.flatten(1).topk(count).indices[..., None]  # [B, C, 1]
    row, column = likely // maxima.size(2), likely % maxima.size(2) * _CHUNK + inside  # [B, C, _CHUNK]
    places = (row * size + column.clamp(max=size - 1)).flatten(1)
    few = numbers.flatten(1).gather(1, places).view_as(column) + added.gather(1, row[..., 0])[..., None]
    best = few.masked_fill(column >= size, NOTHING).flatten(1).topk(count)
    return best.values, places.gather(1, best.indices)


def _maxima(numbers: Float[Tensor, "*S V"]) -> Float[Tensor, "*S N"]:
    """Of each chunk; the last may be shorter."""
    whole = numbers.size(-1) - numbers.size(-1) % _CHUNK
    parts = [numbers[..., :whole].unflatten(-1, (-1, _CHUNK)).amax(dim=-1)]
    if whole < numbers.size(-1):
        parts.append(numbers[..., whole:].amax(dim=-1, keepdim=True))
    return torch.cat(parts, dim=-1)
