"""The encoder: layers of self-attention and feed-forward, over a source that it sees whole."""

from attention import MultiHeadAttention
from embedding import TokenEmbedding
from feed_forward import FeedForwardNet
from masks import padding_mask
from sublayer import Around
from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """Two sub-layers: look around, then think it over."""

    def __init__(
        self, d_model: int, n_heads: int, hidden_size: int, dropout: float = 0.1, pre_norm: bool = True
    ) -> None:
        super().__init__()
        self.mha = MultiHeadAttention(d_model, n_heads, dropout)
        self.ff = FeedForwardNet(d_model, hidden_size, dropout)
        self.around_attention = Around(d_model, dropout, pre_norm)
        self.around_ff = Around(d_model, dropout, pre_norm)

    def forward(self, x: Tensor, attn_masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        inner = self.around_attention.enter(x)
        context, attn = self.mha(inner, inner, inner, attn_masks)
        x = self.around_attention.leave(x, context)
        return self.around_ff.leave(x, self.ff(self.around_ff.enter(x))), attn


class Encoder(nn.Module):
    """Embedding, `layer_nums` layers and, with pre-norm, a last norm, because nothing else tames the sum."""

    def __init__(
        self,
        vocal_size: int,
        d_model: int,
        layer_nums: int,
        max_len: int,
        hidden_size: int,
        n_heads: int = 8,
        p: float = 0.1,
        pre_norm: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocal_size, d_model, max_len, p)
        self.layers = nn.ModuleList(EncoderLayer(d_model, n_heads, hidden_size, p, pre_norm) for _ in range(layer_nums))
        self.norm = nn.LayerNorm(d_model) if pre_norm else nn.Identity()

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The memory [B, S, d_model], and the weights of each layer, [B, h, S, S]."""
        masks = padding_mask(x, x)
        attns = []
        enc_output = self.embedding(x)
        for layer in self.layers:
            enc_output, attn = layer(enc_output, masks)
            attns.append(attn)
        return self.norm(enc_output), attns
