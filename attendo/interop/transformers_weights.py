"""The weights and sizes of a network under the names that the Marian family of transformers has for them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attendo.interop.rearranged import Rearranged
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.text import BOS, EOS, PAD

# What reads the vectors that run through the network, and what writes them: the order of their components is free.
_TABLES, _BIAS = ("embed_tokens.weight", "shared.weight", "lm_head.weight"), "final_logits_bias"
_READ = (*_TABLES, "q_proj.weight", "k_proj.weight", "v_proj.weight")
_WRITTEN = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias", "layer_norm.weight", "layer_norm.bias")


def settings_of(config: ModelConfig, longest: int, order: Rearranged) -> dict[str, Any]:
    """Of a configuration, vocabularies and ties aside; `order` is that of the target's."""

    def share(own: float | None) -> float:
        return config.dropout if own is None else own

    return {
        "max_position_embeddings": longest,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": share(config.attention_dropout),
        "activation_dropout": share(config.activation_dropout),
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "scale_embedding": config.scale_embedding,
        "forced_eos_token_id": None,
        **_control_tokens(order),
    }


def _control_tokens(order: Rearranged) -> dict[str, int]:
    pad, start, end = order.theirs((PAD, BOS, EOS))
    return {"pad_token_id": pad, "bos_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}


def filled(model: Any, network: Transformer, orders: tuple[Rearranged, Rearranged]) -> Any:
    """The model with these weights, in evaluation mode. It starts from our bos, ends at our eos, says neither pad nor
    bos, as far as it has them.
    """
    from transformers import GenerationConfig

    source, target = orders
    positions = {name: each for name, each in model.state_dict().items() if "embed_positions" in name}  # if computed
    weights = {name: each for name, each in _weights(network) if name in model.state_dict()}
    laid: dict[int, Tensor] = {}  # what is shared stays one, which can be gigabytes
    for name, weight in weights.items():
        if name.endswith(_TABLES):
            if (place := weight.data_ptr()) not in laid:
                laid[place] = (source if "encoder" in name else target).laid_out(weight)
            weights[name] = laid[place]
    if _BIAS in weights:
        weights[_BIAS] = target.laid_out(weights[_BIAS][0])[None]
    model.load_state_dict({**positions, **weights})
    silent = target.theirs(each for each in (PAD, BOS) if each not in target.copies)
    model.generation_config = GenerationConfig(**_control_tokens(target), suppress_tokens=silent)
    return model.eval()


def _weights(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    """All of them. Components of vectors stand as with `halves`, where positions are computed."""
    config = network.config
    if config.position_layout != "interleaved" or config.positions == "learned":
        yield from _named(network)
        return
    order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
    order = order.to(network.device)
    for name, weight in _named(network):
        if name.endswith((*_READ, "fc1.weight")):
            yield name, weight[:, order]
        else:
            yield name, weight[order] if name.endswith(_WRITTEN) else weight


def _named(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Every weight of ours under its name there; a table that is shared has several names."""
    assert network.source is not None  # obstacles have been seen to
    yield "model.shared.weight", network.target.tokens.weight
    yield "model.encoder.embed_tokens.weight", network.source.tokens.weight
    yield "model.decoder.embed_tokens.weight", network.target.tokens.weight
    yield "lm_head.weight", network.output.weight
    bias = network.output.bias
    yield _BIAS, torch.zeros(1, network.output.out_features) if bias is None else bias[None]
    for stack, embedding, blocks, norm in (
        ("encoder", network.source, network.encoder, network.encoder_norm),
        ("decoder", network.target, network.decoder, network.decoder_norm),
    ):
        if embedding.norm is not None:
            for kind, gains in embedding.norm.named_parameters():
                yield f"model.{stack}.layernorm_embedding.{kind}", gains
        for _, table in embedding.positions.named_parameters():
            yield f"model.{stack}.embed_positions.weight", table
        for kind, gains in norm.named_parameters():
            yield f"model.{stack}.layer_norm.{kind}", gains
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
