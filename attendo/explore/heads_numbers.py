"""Numbers about rows of attention: how spread, how far, how near the diagonal, how much on special tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

NUMBERS = ("entropy", "relative_entropy", "distance", "diagonality", "special", "largest")


@dataclass(frozen=True)
class Rows:
    """Which rows and columns of a batch of attention are tokens; the rest is padding."""

    rows: Sequence[int]  # of each sentence
    columns: Sequence[int]
    special: Bool[Tensor, "B S"]  # columns that are <s> or </s>
    causal: bool  # row i sees columns up to i, not all


def summed(weights: Float[Tensor, "B H T S"], shape: Rows) -> dict[str, tuple[Float64[Tensor, " H"], int]]:
    """Of each number the sum over all rows, head by head, and how many rows that were.

    With d = i·S/T for row i of T and S columns, and n columns visible to it:

    entropy           −∑ⱼ aⱼ ln aⱼ, in nats
    relative_entropy  entropy / ln n, of the rows that see more than one column
    distance          ∑ⱼ aⱼ |d − j|
    diagonality       ∑ⱼ aⱼ where |d − j| ≤ 1
    special           ∑ⱼ aⱼ where column j is <s> or </s>
    largest           maxⱼ aⱼ
    """
    exact = weights.double()
    entropy = -torch.special.xlogy(exact, exact).sum(dim=-1)
    rows, columns = (torch.tensor(each, device=weights.device) for each in (list(shape.rows), list(shape.columns)))
    row = torch.arange(weights.size(2), device=weights.device)
    # T |d − j| is whole, so that nothing is beside the diagonal or not by rounding.
    away = (
        row[:, None] * columns[:, None, None] - torch.arange(weights.size(3), device=row.device) * _deep(rows)
    ).abs()
    seen = row.expand(len(rows), -1) + 1 if shape.causal else columns[:, None].expand(-1, len(row))
    real = row < rows[:, None]  # [B, T]
    choosing = real & (seen > 1)
    each = {
        "entropy": (entropy, real),
        "relative_entropy": (entropy / seen.clamp(min=2).double().log()[:, None], choosing),
        "distance": (torch.einsum("bhts,bts->bht", exact, away / _deep(rows).double()), real),
        "diagonality": (torch.einsum("bhts,bts->bht", exact, (away <= _deep(rows)).double()), real),
        "special": (torch.einsum("bhts,bs->bht", exact, shape.special.double()), real),
        "largest": (exact.amax(dim=-1), real),
    }
    return {
        name: (values.masked_fill(~counted[:, None], 0.0).sum(dim=(0, 2)).cpu(), int(counted.sum()))
        for name, (values, counted) in each.items()
    }


def _deep(lengths: Tensor) -> Tensor:
    return lengths[:, None, None]
