"""Attention: softmax(Q Kᵀ / √d_k) V, first with one head, then with several."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def attention_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """[..., T, d_k] and [..., S, d_k] give [..., T, S]: each query times each key, divided by √d_k."""
    return queries @ keys.transpose(-2, -1) / math.sqrt(queries.size(-1))


def safe_softmax(scores: Tensor, hidden: Tensor | None = None) -> Tensor:
    """Rows sum to 1 over what is not hidden. A row in which everything is hidden becomes zeros, not NaN."""
    if hidden is None:
        return F.softmax(scores, dim=-1)
    lowest = torch.finfo(scores.dtype).min  # of this very type, so it fits float16 too
    return F.softmax(scores.masked_fill(hidden, lowest), dim=-1).masked_fill(hidden, 0.0)


class MultiHeadAttention(nn.Module):
    """`n_heads` attentions side by side, each d_model / n_heads wide. Serves self- and cross-attention alike."""

    def __init__(self, d_model: int, n_heads: int, p: float = 0.1) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model must be a multiple of n_heads: {d_model} and {n_heads}")
        self.n_heads, self.d_k = n_heads, d_model // n_heads
        self.W_Q = nn.Linear(d_model, d_model)
        self.W_K = nn.Linear(d_model, d_model)
        self.W_V = nn.Linear(d_model, d_model)
        self.fc = nn.Linear(d_model, d_model)
        self.attn_dropout = nn.Dropout(p)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The new vectors [B, T, d_model], and the weights [B, h, T, S] as they were before dropout."""
        queries, keys, values = self.split(self.W_Q(q)), self.split(self.W_K(k)), self.split(self.W_V(v))
        attn = self.weights(attention_scores(queries, keys), masks)
        mixed = self.attn_dropout(attn) @ values  # [B, h, T, d_k]
        return self.fc(mixed.transpose(1, 2).flatten(2)), attn  # [B, T, h, d_k] -> [B, T, d_model]

    def weights(self, scores: Tensor, masks: Tensor | None) -> Tensor:
        """A mask [B, T, S] gets an axis for the heads: [B, 1, T, S]."""
        return safe_softmax(scores, None if masks is None else masks[:, None])

    def split(self, x: Tensor) -> Tensor:
        """[B, L, d_model] -> [B, L, h, d_k] -> [B, h, L, d_k], whatever length this very tensor has."""
        return x.unflatten(-1, (self.n_heads, self.d_k)).transpose(1, 2)
