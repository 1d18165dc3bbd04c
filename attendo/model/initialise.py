"""Initial values of all weights.

| weight                               | initial value                  | why                                       |
|--------------------------------------|--------------------------------|-------------------------------------------|
| token embedding, logits              | normal, std 1/√d_model         | times √d_model a token has size 1, and    |
|                                      |                                | a tied table gives a first loss near ln V |
| embedding neither scaled nor tied    | normal, std 1                  | size 1 without the scale                  |
| learned positions, relative biases   | normal, std 1/√d_model         | smaller than the token vectors and scores |
| query, key and value projections     | Xavier uniform, each by itself | one fused matrix must start like three    |
| every other matrix                   | Xavier uniform                 | keeps activation sizes (Glorot 2010)      |
| biases                               | 0                              |                                           |
| norm gains                           | 1                              |                                           |
"""

import math

import torch
from torch import nn

from attendo.model.config import ModelConfig
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.positions import LearnedPositions, RelativePositions


@torch.no_grad()
def initialise(network: nn.Module, config: ModelConfig, generator: torch.Generator | None = None) -> None:
    small = config.d_model**-0.5
    output_std = small / config.output_scale  # the scale makes the logits smaller or larger
    token_std = output_std if config.ties_output else small if config.scale_embedding else 1.0
    attentions = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
    projections = {attention.project for attention in attentions}

    for module in network.modules():
        if isinstance(module, nn.Linear):
            if module not in projections:
                nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, LearnedPositions | RelativePositions):
            nn.init.normal_(module.table, std=small, generator=generator)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
    for attention in attentions:
        widths = attention.projected_widths
        for part in attention.project.weight.split(widths):
            bound = math.sqrt(6 / (part.size(0) + part.size(1)))
            part.uniform_(-bound, bound, generator=generator)
        if attention.scale is not None:  # the first scores have the same size with any scale
            attention.project.weight[: widths[0]] /= attention.scale * math.sqrt(attention.d_key)
    # Last, because a tied table is also the output's weight. The table's value applies.
    output = network.get_submodule("output")
    assert isinstance(output, nn.Linear)
    nn.init.normal_(output.weight, std=output_std, generator=generator)
    for module in network.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=token_std, generator=generator)
