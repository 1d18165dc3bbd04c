"""Positions as sines and cosines: a vector for each place in a sentence."""

import math

import torch
from torch import Tensor, nn


def position_table(length: int, d_model: int) -> Tensor:
    """[length, d_model]: sine in the even columns, cosine in the odd ones."""
    if d_model % 2:
        raise ValueError(f"sines and cosines come in pairs: d_model must be even, not {d_model}")
    position = torch.arange(length, dtype=torch.float32).unsqueeze(1)  # [length, 1]
    frequency = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))  # [d_model / 2]
    angle = position * frequency  # [length, d_model / 2]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """Adds the table to embeddings [B, T, d_model], then drops some of it out."""

    table: Tensor

    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", position_table(max_len, d_model), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)  # the time axis of a batch-first tensor
        if length > self.table.size(0):
            raise ValueError(f"{length} tokens, but positions for {self.table.size(0)} only: raise max_len")
        return self.dropout(x + self.table[:length])
