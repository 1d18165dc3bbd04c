"""Encoder and decoder layers, with the sub-layers in the paper's order."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from attendo.nn.attention import KeysValues, KVCache, MultiHeadAttention, PendingKeysValues, PrefixedKeysValues, Tap
from attendo.nn.feedforward import Activation, FeedForward
from attendo.nn.masks import Mask
from attendo.nn.positions import Rotation
from attendo.nn.residual import Norm, NormKind, Residual, make_norm
from attendo.nn.ssru import SSRU


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
    linear_bias: bool = True
    attention_scale: float | None = None
    recurrent: bool = False  # SSRU instead of the decoder's self-attention
    num_kv_heads: int | None = None
    qk_norm: bool = False
    merged: bool = False  # the decoder's self-attention also reads the memory, in place of cross-attention

    def attention(self, site: str) -> MultiHeadAttention:
        widths = {"d_key": self.d_key, "d_value": self.d_value}
        made = MultiHeadAttention(
            self.d_model, self.num_heads, self.attention_dropout, site, bias=self.linear_bias, **widths
        )
        made.scale = self.attention_scale
        if self.num_kv_heads not in (None, self.num_heads):
            made.share_heads(self.num_kv_heads)
        if self.qk_norm:
            made.add_norms(lambda width: make_norm("rms", width, self.norm_epsilon))
        return made

    def feed_forward(self) -> FeedForward:
        return FeedForward(self.d_model, self.d_ff, self.activation, self.activation_dropout, self.linear_bias)

    def residual(self) -> Residual:
        of_output = self.make_norm() if self.norm == "sandwich" else None
        return Residual(self.make_norm(), self.norm, self.dropout, of_output)

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
        x, y = self.self_residual.enter(x)
        queries, kv = self.self_attention.queries_keys_values(y, rotation)
        x = self.self_residual.leave(x, self.self_attention(queries, kv, mask, tap))

        x, y = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(y))


class DecoderBlock(nn.Module):
    """Masked self-attention over the target so far, attention to the memory, then the feed-forward network.

    A decoder-only network and one with merged attention have no cross-attention. Self-attention also reads the memory,
    if there is one. A recurrent block has an SSRU, and no self-attention.
    """

    self_attention: MultiHeadAttention  # unless there is a recurrence

    def __init__(self, shape: BlockShape, site: str, with_memory: bool = True) -> None:
        super().__init__()
        self.recurrence = SSRU(shape.d_model, shape.num_heads) if shape.recurrent else None
        if self.recurrence is None:
            self.self_attention = shape.attention(f"{site}.self")
        self.self_residual = shape.residual()
        with_cross = with_memory and not shape.merged
        self.cross_attention = shape.attention(f"{site}.cross") if with_cross else None
        self.cross_residual = shape.residual() if with_cross else None
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
        x, y = self.self_residual.enter(x)
        kv: KeysValues | PendingKeysValues
        if self.recurrence is not None:
            mixed, kv = self.recurrence(y, past, mask)
        else:
            queries, new = self.self_attention.queries_keys_values(y, rotation)
            kv = new if past is None else past.extend(new)
            row: KeysValues | PendingKeysValues | PrefixedKeysValues = kv
            if self.cross_attention is None and memory is not None and memory.length:
                row = PrefixedKeysValues(memory, memory_mask, kv)
            mixed = self.self_attention(queries, row, mask, tap)
        x = self.self_residual.leave(x, mixed)

        if self.cross_attention is not None and self.cross_residual is not None and memory is not None:
            x, y = self.cross_residual.enter(x)
            queries = self.cross_attention.queries(y)
            x = self.cross_residual.leave(x, self.cross_attention(queries, memory, memory_mask, tap))

        x, y = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(y)), kv

    def memory_keys_values(self, states: Float[Tensor, "B S D"]) -> KeysValues:
        """Return the keys and values of the memory, which has no positions in the decoder."""
        return (self.cross_attention or self.self_attention).keys_values(states)

    def self_keys_values(self, x: Float[Tensor, "B T D"], rotation: Rotation | None = None) -> KeysValues:
        """Return only the keys and values of self-attention."""
        return self.self_attention.queries_keys_values(self.self_residual.enter(x)[1], rotation)[1]
