"""A baseline with torch.nn.Transformer and the same sizes, embeddings, positions, tying and masks as attendo."""

import math

import torch
from torch import Tensor, nn

from attendo import ModelConfig


class Rival(nn.Module):
    """torch.nn.Transformer with embeddings and an output projection, as a plain script uses it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.d_model
        self.source = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target = nn.Embedding(config.target_vocab_size, config.d_model)
        if config.tie == "all":
            self.source = self.target
        self.core = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.d_ff,
            config.dropout,
            config.activation,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("table", _sinusoids(512, config.d_model))
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=config.d_model**-0.5)

    def forward(self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None) -> Tensor:
        padding = None if source_mask is None else ~source_mask
        causal = nn.Transformer.generate_square_subsequent_mask(target_ids.size(1), device=target_ids.device)
        x = self.core(
            self._embed(self.source, source_ids),
            self._embed(self.target, target_ids),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return x @ self.target.weight.T

    def _embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * math.sqrt(self.width) + self.table[: ids.size(1)])


def _sinusoids(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
