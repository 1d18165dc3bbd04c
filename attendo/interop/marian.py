"""The same weights as a `MarianMTModel` of transformers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attendo.errors import ModelError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.text import BOS, EOS, PAD

if TYPE_CHECKING:
    from transformers import MarianConfig, MarianMTModel

_EPSILON = 1e-5  # of every norm in a MarianMTModel; its configuration has no place for another


def obstacles(config: ModelConfig) -> list[str]:
    """Why a MarianMTModel cannot hold such a network, one line a reason; nothing where it can."""
    if config.decoder_only:
        return ["it has no encoder"]
    width, uneven = divmod(config.d_model, config.num_heads)
    fits = {
        f"norm is {config.norm}, not post": config.norm == "post",
        f"norm_kind is {config.norm_kind}, not layer": config.norm_kind == "layer",
        f"norm_epsilon is {config.norm_epsilon}, not {_EPSILON}": config.norm_epsilon == _EPSILON,
        "it has a norm behind each stack": not config.has_final_norm,
        "it has a norm on the embedding": not config.embedding_norm,
        f"activation is {config.activation}, which has a gate": config.activation != "swiglu",
        f"positions are {config.positions}, not sinusoidal": config.positions == "sinusoidal",
        f"position_offset is {config.position_offset}, not 0": config.position_offset == 0,
        f"d_key is {config.d_key}, not d_model / num_heads": config.d_key in (None, width),
        f"d_value is {config.d_value}, not d_model / num_heads": config.d_value in (None, width),
        f"d_model {config.d_model} is no multiple of num_heads {config.num_heads}": not uneven,
    }
    if config.positions == "sinusoidal":
        fits[f"position_layout is {config.position_layout}, not halves"] = config.position_layout == "halves"
    return [reason for reason, fit in fits.items() if not fit]


def to_marian(network: Transformer, longest: int = 1024) -> "MarianMTModel":
    """A MarianMTModel in evaluation mode that gives the same logits, for sequences of at most `longest` tokens.

    It starts from our bos, ends at our eos, and says neither pad nor bos, as `TextModel` does.
    """
    from transformers import GenerationConfig, MarianMTModel

    if reasons := obstacles(network.config):
        raise ModelError(f"a MarianMTModel cannot hold this network: {'; '.join(reasons)}")
    with torch.random.fork_rng(devices=[]):  # its first values are thrown away; the caller's must not move on
        model = MarianMTModel(_configuration(network.config, longest))
    positions = {name: each for name, each in model.state_dict().items() if "embed_positions" in name}
    model.load_state_dict({**positions, **dict(_weights(network))})
    model.generation_config = GenerationConfig(
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, decoder_start_token_id=BOS, suppress_tokens=[PAD, BOS]
    )
    return model.eval()


def _configuration(config: ModelConfig, longest: int) -> "MarianConfig":
    from transformers import MarianConfig

    def share(own: float | None) -> float:
        return config.dropout if own is None else own

    return MarianConfig(
        vocab_size=config.source_vocab_size,
        decoder_vocab_size=config.target_vocab_size,
        max_position_embeddings=longest,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        activation_function=config.activation,
        dropout=config.dropout,
        attention_dropout=share(config.attention_dropout),
        activation_dropout=share(config.activation_dropout),
        scale_embedding=config.scale_embedding,
        share_encoder_decoder_embeddings=config.tie == "all",
        tie_word_embeddings=config.tie != "none",
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )


def _weights(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Every weight of ours under its name there; a table that is shared has several names."""
    assert network.source is not None  # obstacles has seen to it
    if network.config.tie == "all":
        yield "model.shared.weight", network.target.tokens.weight
    yield "model.encoder.embed_tokens.weight", network.source.tokens.weight
    yield "model.decoder.embed_tokens.weight", network.target.tokens.weight
    yield "lm_head.weight", network.output.weight
    bias = torch.zeros(network.output.out_features) if network.output.bias is None else network.output.bias
    yield "final_logits_bias", bias[None]
    for stack, blocks in (("encoder", network.encoder), ("decoder", network.decoder)):
        for n, block in enumerate(blocks):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            for name, weight in _block_weights(block):
                yield f"model.{stack}.layers.{n}.{name}", weight


def _block_weights(block: EncoderBlock | DecoderBlock) -> Iterator[tuple[str, Tensor]]:
    yield from _attention_weights("self_attn", block.self_attention)
    modules = {
        "self_attn_layer_norm": block.self_residual.normalise,
        "fc1": block.feed_forward.expand,
        "fc2": block.feed_forward.contract,
        "final_layer_norm": block.feed_forward_residual.normalise,
    }
    if isinstance(block, DecoderBlock) and block.cross_attention is not None and block.cross_residual is not None:
        yield from _attention_weights("encoder_attn", block.cross_attention)
        modules["encoder_attn_layer_norm"] = block.cross_residual.normalise
    for place, module in modules.items():
        for kind, weight in module.named_parameters():
            yield f"{place}.{kind}", weight


def _attention_weights(place: str, attention: MultiHeadAttention) -> Iterator[tuple[str, Tensor]]:
    """Ours are queries, keys and values in one matrix."""
    for kind, weight in attention.project.named_parameters():
        for name, part in zip("qkv", weight.chunk(3), strict=True):
            yield f"{place}.{name}_proj.{kind}", part
    for kind, weight in attention.output.named_parameters():
        yield f"{place}.out_proj.{kind}", weight
