"""A whole decoder on torch's own attention, with learned positions and the norms behind the sub-layers."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TransformerDecoderLayer(nn.Module):
    """Masks are True where something is hidden, all of them."""

    def __init__(self, d_model: int, num_heads: int, dim_feedforward: int = 2048, dropout: float = 0.1) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, dropout=dropout, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, num_heads, dropout=dropout, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(d_model, dim_feedforward), nn.Linear(dim_feedforward, d_model)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout, self.dropout1 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.dropout2, self.dropout3 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.activation: Callable[[Tensor], Tensor] = F.relu

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """[B, T, d_model], and the weights of cross-attention, [B, h, T, S].

        `tgt_mask` is [T, T] or [B, T, T], `memory_mask` [B, S] and `tgt_padding_mask` [B, T].
        """
        context, _ = self.self_attn(
            tgt, tgt, tgt, key_padding_mask=tgt_padding_mask, attn_mask=self._for_heads(tgt_mask)
        )
        tgt = self.norm1(tgt + self.dropout1(context))
        context, weights = self.cross_attn(
            tgt, memory, memory, key_padding_mask=memory_mask, average_attn_weights=False
        )
        tgt = self.norm2(tgt + self.dropout2(context))
        thought = self.linear2(self.dropout(self.activation(self.linear1(tgt))))
        return self.norm3(tgt + self.dropout3(thought)), weights

    def _for_heads(self, mask: Tensor | None) -> Tensor | None:
        """torch wants truth values, and a mask for each head where there is one for each sentence: [B * h, T, T]."""
        if mask is not None and mask.dtype != torch.bool:
            mask = mask == float("-inf")
        if mask is not None and mask.dim() == 3:
            mask = mask.repeat_interleave(self.self_attn.num_heads, dim=0)
        return mask


class TransformerDecoder(nn.Module):
    """Embedding plus learned position, layers, and a projection with a bias."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        max_seq_len: int = 512,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.pos_embedding = nn.Embedding(max_seq_len, d_model)
        self.layers = nn.ModuleList(
            TransformerDecoderLayer(d_model, num_heads, dim_feedforward, dropout) for _ in range(num_layers)
        )
        self.out_proj = nn.Linear(d_model, vocab_size)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """ids [B, T] and memory [B, S, d_model] give logits [B, T, V]."""
        return self.with_weights(tgt, memory, tgt_mask, memory_mask)[0]

    def with_weights(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The same, and the weights of cross-attention by layer."""
        length, longest = tgt.size(1), self.pos_embedding.num_embeddings
        if length > longest:
            raise ValueError(f"{length} tokens, but learned positions for {longest} only: train with more of them")
        x = self.embedding(tgt) + self.pos_embedding(torch.arange(length, device=tgt.device))
        seen = []
        for layer in self.layers:
            x, weights = layer(x, memory, tgt_mask, memory_mask)
            seen.append(weights)
        return self.out_proj(x), seen
