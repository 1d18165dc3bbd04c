"""A decoder layer for tensors that begin with time, [T, B, d_model], on torch's own attention."""

import torch
from torch import Tensor, nn


class DecoderLayer(nn.Module):
    """Post-norm, as in the paper."""

    def __init__(self, d_model: int = 512, n_heads: int = 8, d_ff: int = 2048, dropout: float = 0.1) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout)
        self.cross_attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        tgt_padding: Tensor | None = None,
        memory_padding: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """[T, B, d_model] and [S, B, d_model]; the weights of cross-attention are [B, h, T, S], one map a head.

        `tgt_mask` [T, T] is boolean or added to the scores. The paddings [B, T] and [B, S] are True at padding.
        """
        if tgt_mask is not None and tgt_mask.dtype != torch.bool:
            tgt_mask = tgt_mask == float("-inf")  # one kind of mask for all three
        context, _ = self.self_attn(tgt, tgt, tgt, key_padding_mask=tgt_padding, attn_mask=tgt_mask)
        tgt = self.norm1(tgt + self.dropout(context))
        context, attn_weights = self.cross_attn(
            tgt, memory, memory, key_padding_mask=memory_padding, average_attn_weights=False
        )
        tgt = self.norm2(tgt + self.dropout(context))
        return self.norm3(tgt + self.dropout(self.ffn(tgt))), attn_weights
