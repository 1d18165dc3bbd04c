"""Positions: how the network learns the order of tokens. One class a kind, each with the same two methods.

`add(x, start)` adds position vectors to embeddings; `rotation(x, start)` gives the turn of queries and keys. `start`
is the position of the first token of `x`, one for all rows or one for each. Angles are computed in float32 when needed:
there is no table to outgrow.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError

Layout = Literal["interleaved", "halves", "fairseq"]
Start = int | Int[Tensor, " B"]


@dataclass(frozen=True)
class Rotation:
    """The cosine and sine by which each pair of query or key components is turned."""

    cosine: Float[Tensor, "*#B T half"]
    sine: Float[Tensor, "*#B T half"]

    def rotate(self, heads: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Component i is paired with component i + K/2. In float32, or a distance would depend on where it begins."""
        if torch.is_grad_enabled() and heads.requires_grad:
            turned: Tensor = _RotateFunction.apply(heads, self.cosine, self.sine)
            return turned
        return _rotate(heads, self.cosine, self.sine, 1)


def _rotate(heads: Tensor, cosine: Tensor, sine: Tensor, direction: int) -> Tensor:
    """In either direction. Half precision times float32 is float32."""
    first, second = heads.chunk(2, dim=-1)
    turned = (
        torch.addcmul(first * cosine, second, sine, value=-direction),
        torch.addcmul(second * cosine, first, sine, value=direction),
    )
    return torch.cat(turned, dim=-1).to(heads.dtype)


class _RotateFunction(torch.autograd.Function):
    """The gradient is the one that comes, turned back: a third of the kernels that autograd would need for it."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _rotate(heads, cosine, sine, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _rotate(gradients[0], cosine, sine, -1), None, None


class NoPositions(nn.Module):
    """Order does not exist: the encoder is then permutation-equivariant."""

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        return x

    def rotation(self, x: Float[Tensor, "B T D"], start: Start) -> Rotation | None:
        return None


class SinusoidalPositions(NoPositions):
    """Fixed sines and cosines (section 3.5 of the paper): the vector of pos + k is a linear map of that of pos.

    `interleaved` puts sine and cosine side by side as the paper does, `halves` all sines first as Marian does. So does
    `fairseq`, but its lowest frequency is 1/10000 itself. `offset` is the number of the first position.
    """

    def __init__(self, layout: Layout = "interleaved", offset: int = 0) -> None:
        super().__init__()
        self.layout = layout
        self.offset = offset

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        angles = _angles(self.offset + start, x.size(1), x.size(2), x.device, self.layout == "fairseq")
        if self.layout == "interleaved":
            vectors = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        else:
            vectors = torch.cat((angles.sin(), angles.cos()), dim=-1)
        return x + vectors.to(x.dtype)


class LearnedPositions(NoPositions):
    """One trained vector a position, and none beyond `max_length`."""

    def __init__(self, max_length: int, d_model: int, offset: int = 0) -> None:
        super().__init__()
        self.max_length = max_length
        self.offset = offset
        self.table = nn.Parameter(torch.empty(offset + max_length, d_model))

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        if isinstance(start, Tensor):  # whoever lets rows stand at different positions has seen to their number
            return x + self.table[self.offset + start[:, None] + torch.arange(x.size(1), device=x.device)]
        end = start + x.size(1)
        if end > self.max_length:
            raise UsageError("sequence_exceeds_max_length", count=end, max_length=self.max_length)
        return x + self.table[self.offset + start : self.offset + end]


class RotaryPositions(NoPositions):
    """Queries and keys are turned by their position, so that their product depends on the distance (Su et al. 2021)."""

    def __init__(self, d_key: int) -> None:
        super().__init__()
        if d_key % 2:
            raise UsageError("rotary_head_width_odd", head_width=d_key)
        self.d_key = d_key

    def rotation(self, x: Float[Tensor, "B T D"], start: Start) -> Rotation | None:
        angles = _angles(start, x.size(1), self.d_key, x.device)
        if angles.dim() == 3:
            angles = angles[:, None]  # [B, T, half] -> [B, 1, T, half]: all heads of a row alike
        return Rotation(angles.cos(), angles.sin())


def _angles(
    start: Start, length: int, width: int, device: torch.device, reaches_end: bool = False
) -> Float[Tensor, "*#B T half"]:
    position = torch.arange(length, device=device, dtype=torch.float32)
    position = start[:, None] + position if isinstance(start, Tensor) else start + position
    return position[..., None] * frequencies(width, device, reaches_end)


def frequencies(width: int, device: torch.device | None = None, reaches_end: bool = False) -> Float[Tensor, " half"]:
    """1 / 10000^(2i / width), by way of a^b = exp(b ln a); if it reaches the end, 1 / 10000^(2i / (width - 2))."""
    whole = max(width - 2, 1) if reaches_end else width
    return torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float32) * (-math.log(10_000) / whole))
