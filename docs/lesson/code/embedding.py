"""From ids to vectors: a row of a table for each token, times √d_model, plus its position."""

import math

from positions import PositionalEncoding
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """ids [B, T] -> [B, T, d_model], what the first layer reads."""

    def __init__(self, vocal_size: int, d_model: int, max_len: int = 5000, p: float = 0.1) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocal_size, d_model)
        # So small that, times √d_model, a component has size 1, like those of the positions.
        nn.init.normal_(self.word_embedding.weight, std=d_model**-0.5)
        self.pos_embedding = PositionalEncoding(d_model, p, max_len)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor) -> Tensor:
        return self.pos_embedding(self.word_embedding(ids) * self.scale)
