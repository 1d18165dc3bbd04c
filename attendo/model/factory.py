"""Creates the network of a config."""

import torch

from attendo.model.config import ModelConfig
from attendo.model.parallel import ParallelTransformer
from attendo.model.prefix import PrefixTransformer
from attendo.model.transformer import Transformer


def make_network(config: ModelConfig, generator: torch.Generator | None = None) -> Transformer:
    """Return a new network: autoregressive, predicting all tokens at once, or a prefix LM."""
    if config.kind != "autoregressive":
        return ParallelTransformer(config, generator)
    return (PrefixTransformer if config.prefix_lm else Transformer)(config, generator)
