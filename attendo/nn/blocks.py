"""Encoder and decoder layers, with the sub-layers in the paper's order: residual, feed-forward network, blocks."""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attendo.nn.attention import KeysValues, KVCache, MultiHeadAttention, PendingKeysValues, Tap
from attendo.nn.linear import linear, linear_relu
from attendo.nn.masks import Mask
from attendo.nn.positions import Rotation

Norm = Literal["pre", "post"]
NormKind = Literal["layer", "rms"]
Activation = Literal["relu", "gelu", "silu", "swiglu"]


class Residual(nn.Module):
    """Pre-norm: x + Sublayer(Norm(x)). Post-norm, as in the paper: Norm(x + Sublayer(x)).

    No other module depends on the choice.
    """

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


class FeedForward(nn.Module):
    """FFN(x) = activation(x W₁ + b₁) W₂ + b₂ (section 3.3 of the paper). SwiGLU multiplies by a second projection."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activation
        self.expand = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return linear(self.dropout(self._inner(x)), self.contract.weight, self.contract.bias)

    def _inner(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        weight, bias = self.expand.weight, self.expand.bias
        match self.activation:
            case "relu":
                return linear_relu(x, weight, bias)
            case "gelu":
                return F.gelu(linear(x, weight, bias))
            case "silu":
                return F.silu(linear(x, weight, bias))
            case "swiglu":
                gate, value = linear(x, weight, bias).chunk(2, dim=-1)
                return F.silu(gate) * value


@dataclass(frozen=True)
class BlockShape:
    """Settings shared by all blocks of a network."""

    d_model: int
    num_heads: int
    d_ff: int
    activation: Activation
    norm: Norm
    norm_kind: NormKind
    norm_epsilon: float
    dropout: float
    attention_dropout: float
    activation_dropout: float
    d_key: int
    d_value: int

    def attention(self, site: str) -> MultiHeadAttention:
        return MultiHeadAttention(
            self.d_model, self.num_heads, self.attention_dropout, site, d_key=self.d_key, d_value=self.d_value
        )

    def feed_forward(self) -> FeedForward:
        return FeedForward(self.d_model, self.d_ff, self.activation, self.activation_dropout)

    def residual(self) -> Residual:
        return Residual(self.make_norm(), self.norm, self.dropout)

    def make_norm(self) -> nn.Module:
        return make_norm(self.norm_kind, self.d_model, self.norm_epsilon)


class EncoderBlock(nn.Module):
    """Self-attention over the source, then the feed-forward network."""

    def __init__(self, shape: BlockShape, site: str) -> None:
        super().__init__()
        self.self_attention = shape.attention(f"{site}.self")
        self.self_residual = shape.residual()
        self.feed_forward = shape.feed_forward()
        self.feed_forward_residual = shape.residual()

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Mask, rotation: Rotation | None = None, tap: Tap | None = None
    ) -> Float[Tensor, "B S D"]:
        queries, kv = self.self_attention.queries_keys_values(self.self_residual.enter(x), rotation)
        x = self.self_residual.leave(x, self.self_attention(queries, kv, mask, tap))

        y = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, y)


class DecoderBlock(nn.Module):
    """Masked self-attention over the target so far, attention to the memory, then the feed-forward network.

    A decoder-only network has no memory and therefore no cross-attention.
    """

    def __init__(self, shape: BlockShape, site: str, with_memory: bool = True) -> None:
        super().__init__()
        self.self_attention = shape.attention(f"{site}.self")
        self.self_residual = shape.residual()
        self.cross_attention = shape.attention(f"{site}.cross") if with_memory else None
        self.cross_residual = shape.residual() if with_memory else None
        self.feed_forward = shape.feed_forward()
        self.feed_forward_residual = shape.residual()

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        past: KVCache | None,
        mask: Mask,
        memory: KeysValues | None,
        memory_mask: Mask,
        rotation: Rotation | None = None,
        tap: Tap | None = None,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues | PendingKeysValues]:
        """Return the new vectors, and the keys and values of the whole target so far."""
        queries, new = self.self_attention.queries_keys_values(self.self_residual.enter(x), rotation)
        kv = new if past is None else past.extend(new)
        x = self.self_residual.leave(x, self.self_attention(queries, kv, mask, tap))

        if self.cross_attention is not None and self.cross_residual is not None and memory is not None:
            queries = self.cross_attention.queries(self.cross_residual.enter(x))
            x = self.cross_residual.leave(x, self.cross_attention(queries, memory, memory_mask, tap))

        y = self.feed_forward(self.feed_forward_residual.enter(x))
        return self.feed_forward_residual.leave(x, y), kv
