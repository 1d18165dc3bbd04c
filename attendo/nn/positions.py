"""Position encodings: one class for each variant, with the same methods.

`add(x, start)` adds position vectors to embeddings. `rotation(x, start)` returns the rotation of queries and keys.
`biases(x, start, keys)` returns what is added to the scores. `start` is the position of the first token of `x`, one for
all rows or one for each. Angles are computed in float32 when needed, so no table limits the length.
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
THETA = 10_000.0  # base of the frequencies (section 3.5 of the paper)
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

    def rotation(self, x: Float[Tensor, "B T D"], start: Start, is_local: bool = False) -> Rotation | None:
        """Return the rotation of queries and keys, or that of layers with a sliding window."""
        return None

    def biases(self, x: Float[Tensor, "B T D"], start: Start, keys: int) -> Float[Tensor, "L #B H T S"] | None:
        """Return the numbers that every layer adds to the scores of these queries and of keys from position 0 on."""
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
    """Rotary embeddings: the product of a query and a key depends on their distance (Su et al. 2021).

    `theta` is the base of the frequencies. `scaling` divides them, so that a model reads longer texts (Chen et al.
    2023). Layers with a sliding window have a base of their own, `local_theta`, and no scaling.
    """

    def __init__(
        self, d_key: int, theta: float = THETA, local_theta: float | None = None, scaling: float = 1.0
    ) -> None:
        super().__init__()
        if d_key % 2:
            raise UsageError("rotary_head_width_odd", head_width=d_key)
        self.d_key, self.theta, self.scaling = d_key, theta, scaling
        self.local_theta = theta if local_theta is None else local_theta

    def frequencies(self, device: torch.device | None = None, is_local: bool = False) -> Float[Tensor, " half"]:
        """Return the angle by which each pair of components turns from one position to the next."""
        if is_local:
            return frequencies(self.d_key, device, theta=self.local_theta)
        turns = frequencies(self.d_key, device, theta=self.theta)
        return turns if self.scaling == 1 else turns / self.scaling

    def rotation(self, x: Float[Tensor, "B T D"], start: Start, is_local: bool = False) -> Rotation | None:
        angles = _positions(start, x.size(1), x.device)[..., None] * self.frequencies(x.device, is_local)
        if angles.dim() == 3:
            angles = angles[:, None]  # [B, T, half] -> [B, 1, T, half]: the same for all heads of a row
        return Rotation(angles.cos(), angles.sin())


class RelativePositions(NoPositions):
    """One trained number for each head and bucket of distances, added to the scores (Raffel et al. 2020, section 2.1).

    One set of numbers serves all layers, or each layer has its own. `two_sided` networks look both ways: half of the
    buckets belong to keys ahead of the query.
    """

    def __init__(self, num_heads: int, layers: int, buckets: int, max_distance: int, two_sided: bool) -> None:
        super().__init__()
        self.max_distance, self.two_sided = max_distance, two_sided
        self.table = nn.Parameter(torch.empty(layers, buckets, num_heads))
        # Of the distances from -max_distance to max_distance. All devices and exported networks read these numbers: a
        # logarithm that is computed elsewhere can round to a neighbouring bucket.
        distance = torch.arange(-max_distance, max_distance + 1, device="cpu")
        self.register_buffer("buckets", find_buckets(distance, two_sided, buckets, max_distance), persistent=False)
        self.buckets: Tensor

    def biases(self, x: Float[Tensor, "B T D"], start: Start, keys: int) -> Float[Tensor, "L #B H T S"]:
        """Return the numbers of queries from position `start` on and keys from position 0 on, in x's precision."""
        device, queries = x.device, x.size(1)
        if isinstance(start, Tensor):
            query = start[:, None, None] + torch.arange(queries, device=device)[:, None]
            by_distance = self.by_distance(torch.arange(keys, device=device) - query)  # [L, H, B, T, S]
            return by_distance.transpose(1, 2).to(_compute_dtype(x))
        # Each query sees the numbers of a window. The window of the next query begins one distance earlier.
        distance = torch.arange(1 - queries - start, keys - start, device=device)
        by_distance = self.by_distance(distance).to(_compute_dtype(x))
        return by_distance.unfold(-1, keys, 1).flip(-2)[:, None]

    def by_distance(self, distance: Int[Tensor, "*N"]) -> Float[Tensor, "L H *N"]:
        """Return the numbers of these distances, key position minus query position."""
        buckets = self.buckets[distance.clamp(-self.max_distance, self.max_distance) + self.max_distance]
        return self.table.transpose(1, 2)[:, :, buckets]


def find_buckets(distance: Int[Tensor, " N"], two_sided: bool, buckets: int, max_distance: int) -> Int[Tensor, " N"]:
    """Return the bucket of each distance, as T5 does.

    Half of the buckets of a side hold one distance each. The others grow logarithmically up to `max_distance`. With
    `two_sided` False, keys ahead of the query are in bucket 0, because no query may see them.
    """
    first = torch.zeros_like(distance)
    if two_sided:
        buckets //= 2
        first = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    scaled = torch.log(distance.float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    far = exact + scaled.clamp(min=0).long()  # the logarithm of 0 is not used
    return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


def _compute_dtype(x: Tensor) -> torch.dtype:
    """Return the precision of products with `x`."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):  # autocast does not know the device of shapes
        return x.dtype
    return torch.get_autocast_dtype(kind)


def _angles(
    start: Start, length: int, width: int, device: torch.device, reaches_end: bool = False
) -> Float[Tensor, "*#B T half"]:
    return _positions(start, length, device)[..., None] * frequencies(width, device, reaches_end)


def _positions(start: Start, length: int, device: torch.device) -> Float[Tensor, "*#B T"]:
    position = torch.arange(length, device=device, dtype=torch.float32)
    return start[:, None] + position if isinstance(start, Tensor) else start + position


def frequencies(
    width: int, device: torch.device | None = None, reaches_end: bool = False, theta: float = THETA
) -> Float[Tensor, " half"]:
    """Return 1 / theta^(2i / width) as exp(b ln a). With `reaches_end`, return 1 / theta^(2i / (width - 2))."""
    divisor = max(width - 2, 1) if reaches_end else width
    return torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float32) * (-math.log(theta) / divisor))
