"""The decoder: layers that look back at the target so far, then across at the source, then think it over."""

from attention import MultiHeadAttention
from embedding import TokenEmbedding
from feed_forward import FeedForwardNet
from masks import padding_mask, self_mask
from sublayer import Around
from torch import Tensor, nn


class DecoderLayer(nn.Module):
    """Three sub-layers, in this order."""

    def __init__(
        self, d_model: int, n_heads: int, hidden_size: int, dropout: float = 0.1, pre_norm: bool = True
    ) -> None:
        super().__init__()
        self.self_mha = MultiHeadAttention(d_model, n_heads, dropout)
        self.cross_mha = MultiHeadAttention(d_model, n_heads, dropout)
        self.ff = FeedForwardNet(d_model, hidden_size, dropout)
        self.around_self = Around(d_model, dropout, pre_norm)
        self.around_cross = Around(d_model, dropout, pre_norm)
        self.around_ff = Around(d_model, dropout, pre_norm)

    def forward(
        self, x: Tensor, enc_output: Tensor, self_mask: Tensor, cross_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        inner = self.around_self.enter(x)
        context, self_attn = self.self_mha(inner, inner, inner, self_mask)  # looks back
        x = self.around_self.leave(x, context)

        inner = self.around_cross.enter(x)
        context, cross_attn = self.cross_mha(inner, enc_output, enc_output, cross_mask)  # looks across
        x = self.around_cross.leave(x, context)

        return self.around_ff.leave(x, self.ff(self.around_ff.enter(x))), self_attn, cross_attn


class Decoder(nn.Module):
    """Embedding, `layer_nums` layers and, with pre-norm, a last norm. The norms stand as they do in the encoder."""

    def __init__(
        self,
        vocal_size: int,
        d_model: int,
        max_len: int,
        layer_nums: int,
        hidden_size: int,
        p: float = 0.1,
        n_heads: int = 8,
        pre_norm: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocal_size, d_model, max_len, p)
        self.layers = nn.ModuleList(DecoderLayer(d_model, n_heads, hidden_size, p, pre_norm) for _ in range(layer_nums))
        self.norm = nn.LayerNorm(d_model) if pre_norm else nn.Identity()

    def forward(self, x: Tensor, enc_x: Tensor, enc_context: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Target ids, source ids and the memory; gives [B, T, d_model], and both kinds of weights by layer."""
        back, across = self.masks(x, enc_x)
        self_attns, cross_attns = [], []
        dec_output = self.embedding(x)
        for layer in self.layers:
            dec_output, self_attn, cross_attn = layer(dec_output, enc_context, back, across)
            self_attns.append(self_attn)
            cross_attns.append(cross_attn)
        return self.norm(dec_output), self_attns, cross_attns

    def masks(self, x: Tensor, enc_x: Tensor) -> tuple[Tensor, Tensor]:
        """For looking back [B, T, T]: padding and future. For looking across [B, T, S]: the padding of the source."""
        return self_mask(x), padding_mask(x, enc_x)
