"""The same weights as a `PegasusForConditionalGeneration` of transformers: what Marian is, with the norms before."""

from typing import TYPE_CHECKING

import torch

from attendo.errors import ModelError
from attendo.interop.transformers_weights import common_obstacles, filled, settings_of
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

if TYPE_CHECKING:
    from transformers import PegasusForConditionalGeneration


def obstacles(config: ModelConfig) -> list[str]:
    """Why a Pegasus model cannot hold such a network, one line a reason; nothing where it can."""
    if config.decoder_only:
        return ["it has no encoder"]
    sizes = config.source_vocab_size, config.target_vocab_size
    fits = {
        f"norm is {config.norm}, not pre": config.norm == "pre",
        "it has no norm behind each stack": config.has_final_norm,
        f"source and target have {sizes[0]} and {sizes[1]} tokens, not as many": sizes[0] == sizes[1],
        **common_obstacles(config),
    }
    return [reason for reason, fit in fits.items() if not fit]


def to_pegasus(network: Transformer, longest: int = 1024) -> "PegasusForConditionalGeneration":
    """A model in evaluation mode that gives the same logits, as `to_marian` makes one."""
    config = network.config
    if reasons := obstacles(config):
        raise ModelError(f"a Pegasus model cannot hold this network: {'; '.join(reasons)}")
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    settings = PegasusConfig(
        vocab_size=config.target_vocab_size, tie_word_embeddings=config.tie == "all", **settings_of(config, longest)
    )
    with torch.random.fork_rng(devices=[]):  # its first values are thrown away; the caller's must not move on
        model = PegasusForConditionalGeneration(settings)
    return filled(model, network)
