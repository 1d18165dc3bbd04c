"""The same multi-head attention with a loop over the heads: slower, and every step is a plain matrix product."""

import torch
from attention import MultiHeadAttention, attention_scores, safe_softmax
from torch import Tensor


def attention_head_by_head(
    module: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, masks: Tensor | None = None
) -> Tensor:
    """What `module(q, k, v, masks)` gives in evaluation mode."""
    queries, keys, values = module.W_Q(q), module.W_K(k), module.W_V(v)
    heads = []
    for n in range(module.n_heads):
        mine = slice(n * module.d_k, (n + 1) * module.d_k)  # the columns of head n
        weights = safe_softmax(attention_scores(queries[..., mine], keys[..., mine]), masks)
        heads.append(weights @ values[..., mine])  # [B, T, d_k]
    return module.fc(torch.cat(heads, dim=-1))
