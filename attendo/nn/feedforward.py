"""The position-wise feed-forward network: FFN(x) = activation(x W₁ + b₁) W₂ + b₂ (section 3.3 of the paper)."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Activation = Literal["relu", "gelu", "silu", "swiglu"]


class FeedForward(nn.Module):
    """Each position by itself: wider, bent, and back. SwiGLU multiplies a second projection into the bent one."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activation
        self.expand = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.contract(self.dropout(self._activate(self.expand(x))))

    def _activate(self, x: Float[Tensor, "B T F"]) -> Float[Tensor, "B T G"]:
        match self.activation:
            case "relu":
                return F.relu(x)
            case "gelu":
                return F.gelu(x)
            case "silu":
                return F.silu(x)
            case "swiglu":
                gate, value = x.chunk(2, dim=-1)
                return F.silu(gate) * value
