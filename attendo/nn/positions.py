"""Position encodings: one class for each variant, with the same two methods.

`add(x, start)` adds position vectors to embeddings. `rotation(x, start)` returns the rotation of queries and keys.
`start` is the position of the first token of `x`, one for all rows or one for each. Angles are computed in float32 when
needed, so no table limits the length.
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
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Rotation:
    """The cosine and sine that rotate each pair of query or key components."""

    cosine: Float[Tensor, "*#B T half"]
    sine: Float[Tensor, "*#B T half"]

    def rotate(self, heads: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate component i together with component i + K/2. Uses float32; else distances depend on the position."""
        if torch.is_grad_enabled() and heads.requires_grad:
            turned: Tensor = _RotateFunction.apply(heads, self.cosine, self.sine)
            return turned
        return _rotate(heads, self.cosine, self.sine, 1)


def _rotate(heads: Tensor, cosine: Tensor, sine: Tensor, direction: int) -> Tensor:
    """Rotate forward (1) or backward (-1). Half precision times float32 is float32."""
    first, second = heads.chunk(2, dim=-1)
    turned = (
        torch.addcmul(first * cosine, second, sine, value=-direction),
        torch.addcmul(second * cosine, first, sine, value=direction),
    )
    return torch.cat(turned, dim=-1).to(heads.dtype)


class _RotateFunction(torch.autograd.Function):
    """Rotation whose gradient is the inverse rotation. It needs a third of the kernels of autograd."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return _rotate(heads, cosine, sine, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return _rotate(gradients[0], cosine, sine, -1), None, None


class NoPositions(nn.Module):
    """No position encoding. The encoder is then permutation-equivariant."""

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        return x

    def rotation(self, x: Float[Tensor, "B T D"], start: Start) -> Rotation | None:
        return None


class SinusoidalPositions(NoPositions):
    """Fixed sines and cosines (section 3.5 of the paper). The vector of pos + k is a linear map of the vector of pos.

    `interleaved` alternates sine and cosine as in the paper. `halves` puts all sines first, as in Marian. `fairseq`
    does the same, but its lowest frequency is exactly 1/10000. `offset` is the number of the first position.
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


class OrthogonalPositions(NoPositions):
    """Fixed sines and cosines whose frequencies are spread evenly between 0 and π.

    The vectors of two positions are nearly orthogonal: the cosine is below 0.4 with d_model 256, for distances up to
    2,000. Those of `SinusoidalPositions` are almost equal for neighbours.
    """

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        # Squares times the golden ratio, modulo 1, are spread evenly for any width, without a common period.
        steps = torch.arange(1, x.size(2) // 2 + 1, device=x.device, dtype=torch.float64) ** 2 * _GOLDEN_RATIO
        angles = _positions(start, x.size(1), x.device)[..., None] * (math.pi * steps.frac()).float()
        return x + torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)


class LearnedPositions(NoPositions):
    """One trained vector for each of `max_length` positions."""

    def __init__(self, max_length: int, d_model: int, offset: int = 0) -> None:
        super().__init__()
        self.max_length = max_length
        self.offset = offset
        self.table = nn.Parameter(torch.empty(offset + max_length, d_model))

    def add(self, x: Float[Tensor, "B T D"], start: Start) -> Float[Tensor, "B T D"]:
        if isinstance(start, Tensor):  # the caller has checked the length
            return x + self.table[self.offset + start[:, None] + torch.arange(x.size(1), device=x.device)]
        end = start + x.size(1)
        if end > self.max_length:
            raise UsageError("sequence_exceeds_max_length", count=end, max_length=self.max_length)
        return x + self.table[self.offset + start : self.offset + end]


class RotaryPositions(NoPositions):
    """Rotary embeddings: the product of a query and a key depends on their distance (Su et al. 2021)."""

    def __init__(self, d_key: int) -> None:
        super().__init__()
        if d_key % 2:
            raise UsageError("rotary_head_width_odd", head_width=d_key)
        self.d_key = d_key

    def rotation(self, x: Float[Tensor, "B T D"], start: Start) -> Rotation | None:
        angles = _angles(start, x.size(1), self.d_key, x.device)
        if angles.dim() == 3:
            angles = angles[:, None]  # [B, T, half] -> [B, 1, T, half]: the same for all heads of a row
        return Rotation(angles.cos(), angles.sin())


def _angles(
    start: Start, length: int, width: int, device: torch.device, reaches_end: bool = False
) -> Float[Tensor, "*#B T half"]:
    return _positions(start, length, device)[..., None] * frequencies(width, device, reaches_end)


def _positions(start: Start, length: int, device: torch.device) -> Float[Tensor, "*#B T"]:
    position = torch.arange(length, device=device, dtype=torch.float32)
    return start[:, None] + position if isinstance(start, Tensor) else start + position


def frequencies(width: int, device: torch.device | None = None, reaches_end: bool = False) -> Float[Tensor, " half"]:
    """Return 1 / 10000^(2i / width) as exp(b ln a). With `reaches_end`, return 1 / 10000^(2i / (width - 2))."""
    divisor = max(width - 2, 1) if reaches_end else width
    return torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float32) * (-math.log(10_000) / divisor))
