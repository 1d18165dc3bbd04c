"""Residual connection with pre-norm or post-norm. No other module depends on the choice."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

Norm = Literal["pre", "post"]
NormKind = Literal["layer", "rms"]


class Residual(nn.Module):
    """Pre-norm: x + Sublayer(Norm(x)). Post-norm, as in the paper: Norm(x + Sublayer(x))."""

    def __init__(self, normalise: nn.Module, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        self.normalise = normalise
        self.pre_norm = norm == "pre"
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return the input of the sub-layer."""
        return self.normalise(x) if self.pre_norm else x

    def leave(self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the output `y` of the sub-layer to its input `x`, and normalise the sum with post-norm."""
        x = x + self.dropout(y)
        return x if self.pre_norm else self.normalise(x)


def make_norm(kind: NormKind, d_model: int, epsilon: float) -> nn.Module:
    return nn.LayerNorm(d_model, eps=epsilon) if kind == "layer" else nn.RMSNorm(d_model, eps=epsilon)
