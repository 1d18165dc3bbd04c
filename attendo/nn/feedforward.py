"""The position-wise feed-forward network: FFN(x) = activation(x W₁ + b₁) W₂ + b₂ (section 3.3 of the paper)."""

from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attendo.nn.linear import linear, linear_relu

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh", "reglu"]
GATED = ("swiglu", "geglu", "geglu_tanh", "reglu")


class FeedForward(nn.Module):
    """A projection to d_ff, an activation, and a projection back. Gated ones multiply by a second projection."""

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation
        self.expand = nn.Linear(d_model, 2 * d_ff if activation in GATED else d_ff, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return linear(self.dropout(self._inner(x)), self.contract.weight, self.contract.bias)

    def _inner(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        weight, bias = self.expand.weight, self.expand.bias
        match self.activation:
            case "relu":
                return linear_relu(x, weight, bias)
            case "gelu":
                return F.gelu(linear(x, weight, bias))
            case "gelu_tanh":
                return F.gelu(linear(x, weight, bias), approximate="tanh")
            case "silu":
                return F.silu(linear(x, weight, bias))
            case _:
                gate, value = linear(x, weight, bias).chunk(2, dim=-1)
                return self._activate_gate(gate) * value

    def _activate_gate(self, gate: Float[Tensor, "B T F"]) -> Float[Tensor, "B T F"]:
        match self.activation:
            case "geglu":
                return F.gelu(gate)
            case "geglu_tanh":
                return F.gelu(gate, approximate="tanh")
            case "reglu":
                return F.relu(gate)
            case _:
                return F.silu(gate)
