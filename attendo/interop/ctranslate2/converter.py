"""Converter from a `Transformer` to a CTranslate2 model folder."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attendo.errors import MessagePart, ModelError
from attendo.interop.errors import find_gemma_settings, join_reasons, unmet_conditions
from attendo.interop.exported_files import require_empty
from attendo.interop.head_layout import HeadLayout
from attendo.interop.huggingface.vocabulary import SUPPRESS_BIAS
from attendo.model.config import ModelConfig
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.feedforward import GATED, FeedForward
from attendo.nn.positions import LearnedPositions, RelativePositions
from attendo.text import CONTROL_PIECES, EOS

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

# Precision of the stored weights. CTranslate2 converts them to its compute type when it loads them.
CTranslate2Quantization = Literal[
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16"
]

_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
    "geglu_tanh": "GELUTanh",
    "reglu": "RELU",
}


def incompatibilities(config: ModelConfig) -> list[MessagePart]:
    """Return the reasons why CTranslate2 cannot hold this network; empty if it can."""
    if config.decoder_only:
        return [MessagePart("encoder_missing")]
    heads = HeadLayout.from_config(config)
    keys, values = heads.d_key, heads.d_value
    sizes = {config.source_vocab_size or 0, config.target_vocab_size or 0}
    conditions = unmet_conditions(
        {
            # Narrower keys or values are padded with zeros. Padding would break the pairs of rotary keys.
            MessagePart("rotary_keys_narrow", keys=keys, values=values): config.positions != "rotary" or keys >= values,
            MessagePart("recurrent_decoder"): config.autoregression == "attention",
            MessagePart("sandwich_norm"): config.norm != "sandwich",
            MessagePart("vocabulary_without_control_tokens", size=min(sizes)): min(sizes) > EOS,
        }
    )
    return [*conditions, *find_gemma_settings(config)]


def to_ctranslate2(
    network: Transformer,
    folder: str | Path,
    precision: CTranslate2Quantization = "float32",
    max_length: int = 1024,
    vocabularies: tuple[Sequence[str], Sequence[str]] | None = None,
    suppress_tokens: Sequence[int] = (),
) -> None:
    """Write a new folder that `ctranslate2.Translator` loads, for sequences of at most `max_length` tokens.

    `vocabularies` are the token names of source and target, control tokens first; the default is `placeholder_pieces`.
    Pass sources without eos: the folder sets `add_source_eos`. `suppress_tokens` are never generated, even if the
    caller does not suppress them.
    """
    if reasons := incompatibilities(network.config):
        raise ModelError("ctranslate2_network_unsupported", reasons=join_reasons(reasons))
    folder = Path(folder)
    require_empty(folder)
    spec = _build_spec(network, max_length)
    if suppress_tokens:
        _set_linear(spec.decoder.projection, network.output.weight, _add_suppression(network.output, suppress_tokens))
    sizes = network.config.source_vocab_size or 0, network.config.target_vocab_size or 0
    source, target = vocabularies or map(placeholder_pieces, sizes)
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.validate()
    spec.optimize(quantization=precision)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def placeholder_pieces(vocab_size: int) -> list[str]:
    """Return a unique name for each id."""
    return [*CONTROL_PIECES, *(f"<{each}>" for each in range(len(CONTROL_PIECES), vocab_size))]


def _add_suppression(output: nn.Linear, suppress_tokens: Sequence[int]) -> Tensor:
    bias = torch.zeros(output.out_features) if output.bias is None else output.bias.detach().clone()
    bias[list(suppress_tokens)] = SUPPRESS_BIAS
    return bias


def _build_spec(network: Transformer, max_length: int) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    config = network.config
    assert network.source is not None  # `incompatibilities` rejects networks without an encoder
    choices = _spec_options(config)
    encoder = TransformerEncoderSpec(config.num_encoder_layers, config.num_heads, **choices)
    decoder = TransformerDecoderSpec(config.num_decoder_layers, config.num_heads, **choices)
    spec = TransformerSpec(encoder, decoder)
    _set_stack(encoder, encoder.embeddings[0], network.source, max_length)
    _set_stack(decoder, decoder.embeddings, network.target, max_length)
    for stack, norm, blocks in (
        (encoder, network.encoder_norm, network.encoder),
        (decoder, network.decoder_norm, network.decoder),
    ):
        stack.pre_norm = config.norm == "pre"
        if config.has_final_norm:
            _set_norm(stack.layer_norm, norm)
        for layer, block in zip(stack.layer, blocks, strict=True):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            _set_block(layer, block)
    for stack, embedding in ((encoder, network.source), (decoder, network.target)):
        if isinstance(embedding.positions, RelativePositions):
            _set_relative_bias(stack, embedding.positions)
    if config.output_scale != 1:
        decoder.scale_outputs = np.float32(config.output_scale)
    _set_linear(decoder.projection, network.output.weight, network.output.bias)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.add_source_eos = True
    return spec


def _spec_options(config: ModelConfig) -> dict[str, Any]:
    """Return the options of both stacks. `pre_norm` is set later: only pre-norm specs may have a final norm."""
    from ctranslate2.specs.common_spec import Activation

    choices: dict[str, Any] = {
        "pre_norm": True,
        "no_final_norm": not config.has_final_norm,
        "activation": Activation[_ACTIVATIONS[config.activation]],
        "ffn_glu": config.activation in GATED,
        "rms_norm": config.norm_kind == "rms",
        "layernorm_embedding": config.embedding_norm,
    }
    width = HeadLayout.from_config(config).width
    if width * config.num_heads != config.d_model:
        choices["head_dim"] = width
    choices["relative_attention_bias"] = config.positions == "relative"
    if config.positions == "rotary":
        choices |= {"rotary_dim": 0, "rotary_interleave": False}
    return choices


def _set_stack(stack: Any, embeddings: Any, embedding: Embedding, max_length: int) -> None:
    embeddings.weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = embedding.scale
    if hasattr(stack, "position_encodings"):
        stack.position_encodings.encodings = _array(_position_table(embedding, max_length))
    if embedding.norm is not None:
        _set_norm(stack.layernorm_embedding, embedding.norm)


def _position_table(embedding: Embedding, max_length: int) -> Tensor:
    """Return the vectors added at each position: zeros if none are added, as CTranslate2 has no option for that."""
    positions, tokens = embedding.positions, embedding.tokens
    length = min(max_length, positions.max_length) if isinstance(positions, LearnedPositions) else max_length
    return positions.add(torch.zeros(1, length, tokens.embedding_dim, device=tokens.weight.device), 0)[0]


def _set_relative_bias(stack: Any, positions: RelativePositions) -> None:
    for n, layer in enumerate(stack.layer):
        layer.self_attention.relative_attention_bias = _array(positions.table[n if len(positions.table) > 1 else 0])
        layer.self_attention.relative_attention_max_distance = np.int32(positions.max_distance)


def _set_block(layer: Any, block: EncoderBlock | DecoderBlock) -> None:
    _set_attention(layer.self_attention, block.self_attention, self_attention=True)
    _set_norm(layer.self_attention.layer_norm, block.self_residual.normalise)
    if isinstance(block, DecoderBlock) and block.cross_attention is not None and block.cross_residual is not None:
        _set_attention(layer.attention, block.cross_attention, self_attention=False)
        _set_norm(layer.attention.layer_norm, block.cross_residual.normalise)
    _set_feed_forward(layer.ffn, block.feed_forward)
    _set_norm(layer.ffn.layer_norm, block.feed_forward_residual.normalise)


def _set_attention(spec: Any, attention: MultiHeadAttention, self_attention: bool) -> None:
    """Set one matrix for queries, keys and values. Cross-attention has a separate matrix for queries.

    CTranslate2 divides queries · keys by the root of the padded width, so queries are scaled up to compensate.
    """
    heads = HeadLayout(attention.num_heads, attention.d_key, attention.d_value)
    if attention.scale is None:
        queries = heads.queries(attention, math.sqrt(heads.d_key / heads.width))
    else:
        queries = heads.queries(attention, 1.0)
        spec.queries_scale = np.float32(attention.scale)
    parts = [queries, heads.keys(attention), heads.values(attention)]
    groups = [parts] if self_attention else [parts[:1], parts[1:]]
    for linear, group in zip(spec.linear, groups, strict=False):
        weights, biases = [each for each, _ in group], [each for _, each in group if each is not None]
        _set_linear(linear, torch.cat(weights), torch.cat(biases) if biases else None)
    _set_linear(spec.linear[-1], *heads.output(attention))


def _set_feed_forward(spec: Any, feed_forward: FeedForward) -> None:
    expand, contract = feed_forward.expand, feed_forward.contract
    weights: Sequence[Tensor] = (expand.weight,)
    biases: Sequence[Tensor | None] = (expand.bias,)
    if feed_forward.activation in GATED:
        weights = expand.weight.chunk(2)
        biases = (None, None) if expand.bias is None else expand.bias.chunk(2)
        _set_linear(spec.linear_0_noact, weights[1], biases[1])
    _set_linear(spec.linear_0, weights[0], biases[0])
    _set_linear(spec.linear_1, contract.weight, contract.bias)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(norm.get_parameter("weight"))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(weight: Tensor) -> NDArray[np.float32]:
    """Return a copy, because CTranslate2 quantizes in place."""
    return weight.detach().float().cpu().numpy().copy()
