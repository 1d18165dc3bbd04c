"""The same weights as a `MarianMTModel` of transformers."""

from typing import TYPE_CHECKING

import torch

from attendo.errors import ModelError
from attendo.interop.transformers_weights import common_obstacles, filled, settings_of
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

if TYPE_CHECKING:
    from transformers import MarianMTModel


def obstacles(config: ModelConfig) -> list[str]:
    """Why a MarianMTModel cannot hold such a network, one line a reason; nothing where it can."""
    if config.decoder_only:
        return ["it has no encoder"]
    fits = {
        f"norm is {config.norm}, not post": config.norm == "post",
        "it has a norm behind each stack": not config.has_final_norm,
        **common_obstacles(config),
    }
    return [reason for reason, fit in fits.items() if not fit]


def to_marian(network: Transformer, longest: int = 1024) -> "MarianMTModel":
    """A MarianMTModel in evaluation mode that gives the same logits, for sequences of at most `longest` tokens.

    It starts from our bos, ends at our eos, and says neither pad nor bos, as `TextModel` does.
    """
    config = network.config
    if reasons := obstacles(config):
        raise ModelError(f"a MarianMTModel cannot hold this network: {'; '.join(reasons)}")
    from transformers import MarianConfig, MarianMTModel

    settings = MarianConfig(
        vocab_size=config.source_vocab_size,
        decoder_vocab_size=config.target_vocab_size,
        share_encoder_decoder_embeddings=config.tie == "all",
        tie_word_embeddings=config.tie != "none",
        **settings_of(config, longest),
    )
    with torch.random.fork_rng(devices=[]):  # its first values are thrown away; the caller's must not move on
        model = MarianMTModel(settings)
    return filled(model, network)
