"""The path around a sub-layer: residual connection, layer normalisation, and dropout once."""

from torch import Tensor, nn


class Around(nn.Module):
    """Pre-norm: x + Sub(LN(x)). Post-norm: LN(x + Sub(x))."""

    def __init__(self, d_model: int, dropout: float = 0.1, pre_norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = pre_norm

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer is given."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, made: Tensor) -> Tensor:
        """What goes on: what came in, plus what the sub-layer made of it."""
        x = x + self.dropout(made)
        return x if self.pre_norm else self.norm(x)
