"""Conversion of a `torch.nn.Transformer`, its embeddings and its output layer to a `Transformer`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attendo.errors import MessagePart, ModelError
from attendo.interop.errors import join_reasons, unmet_conditions
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock

_ACTIVATIONS: dict[Any, str] = {F.relu: "relu", torch.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
_ACTIVATION_MODULES = {nn.ReLU: "relu", nn.GELU: "gelu", nn.SiLU: "silu"}
_EXPECTED_CLASSES: Mapping[str, Any] = {
    "encoder": nn.TransformerEncoder,
    "decoder": nn.TransformerDecoder,
    "source_embedding": nn.Embedding,
    "target_embedding": nn.Embedding,
    "output": nn.Linear,
    "linear": nn.Linear,
    "attention": nn.MultiheadAttention,
    "norm": nn.LayerNorm,
}


@dataclass(frozen=True)
class AddedPositions:
    """Positions added to the embeddings: sinusoids as `ModelConfig` names them, or a table for each side."""

    layout: Literal["interleaved", "halves", "fairseq"] | None = None
    offset: int = 0
    source_table: Tensor | None = None  # [positions, d_model]
    target_table: Tensor | None = None


def from_torch(
    transformer: nn.Transformer,
    source_embedding: nn.Embedding,
    target_embedding: nn.Embedding,
    output: nn.Linear,
    positions: AddedPositions | None = None,
    scale_embedding: bool = False,
) -> Transformer:
    """Return a copy in evaluation mode. Ids are unchanged: decoding needs pad 0, unk 1, bos 2 and eos 3.

    torch's module has no positions and no embedding scale. Set both arguments to match your code.
    """
    if reasons := incompatibilities(transformer, source_embedding, target_embedding, output):
        raise ModelError("torch_network_unsupported", reasons=join_reasons(reasons))
    stacks = _stacks(transformer)
    first = stacks[0][0]
    config = ModelConfig(
        source_vocab_size=source_embedding.num_embeddings,
        target_vocab_size=target_embedding.num_embeddings,
        d_model=output.in_features,
        num_heads=first.self_attn.num_heads,
        d_ff=first.linear1.out_features,
        num_encoder_layers=len(stacks[0]),
        num_decoder_layers=len(stacks[1]),
        dropout=first.dropout1.p,
        attention_dropout=first.self_attn.dropout,
        activation_dropout=first.dropout.p,
        norm="pre" if first.norm_first else "post",
        norm_epsilon=first.norm1.eps,
        final_norm=transformer.encoder.norm is not None,
        activation=_activation(first),
        tie=_tie(source_embedding, target_embedding, output),
        scale_embedding=scale_embedding,
        output_bias=output.bias is not None,
        **_position_settings(positions, output.in_features),
    )
    network = allocate_network(config)
    for ours, theirs in _module_pairs(network, transformer, (source_embedding, target_embedding, output)):
        _copy_module(ours, theirs)
    _set_positions(network, positions)
    return network.eval()


def incompatibilities(
    transformer: nn.Transformer, source_embedding: nn.Embedding, target_embedding: nn.Embedding, output: nn.Linear
) -> list[MessagePart]:
    """Return the reasons why a `Transformer` cannot hold this network; empty if it can."""
    if not isinstance(transformer, nn.Transformer):
        return [MessagePart("torch_network_class", found=_class_name(transformer))]
    stacks = _stacks(transformer)
    layers: list[Any] = [layer for stack in stacks for layer in stack]
    if not all(stacks) or {type(layer) for layer in layers} != {nn.TransformerEncoderLayer, nn.TransformerDecoderLayer}:
        kinds = sorted({_class_name(layer) for layer in layers})
        return [MessagePart("torch_layer_classes", found=", ".join(kinds) or "none")]
    attentions = [each for layer in layers for each in _attentions(layer)]
    final = (transformer.encoder.norm, transformer.decoder.norm)
    norms = [each for each in (*final, *(norm for layer in layers for norm in _norms(layer))) if each is not None]
    kinds_of_norms = {type(each).__name__ for each in norms}
    if kinds_of_norms != {"LayerNorm"} or any(each.weight is None for each in norms):
        return [MessagePart("torch_norm_classes", found=", ".join(sorted(kinds_of_norms)))]
    modules = (("source_embedding", source_embedding), ("target_embedding", target_embedding), ("output", output))
    if other := [*_find_replaced_modules(transformer, layers, dict(modules))]:
        return other
    widths = {output.in_features, source_embedding.embedding_dim, target_embedding.embedding_dim, transformer.d_model}
    outputs, tokens = output.out_features, target_embedding.num_embeddings
    epsilons = {each.eps for each in norms}
    plain_attention = all(_is_plain(each, transformer.d_model) for each in attentions)
    same_layers = len(set(map(_layer_settings, layers))) == len({each.num_heads for each in attentions}) == 1
    return unmet_conditions(
        {
            MessagePart("torch_widths_differ", widths=sorted(widths)): len(widths) == 1,
            MessagePart("torch_vocabulary_sizes_differ", outputs=outputs, tokens=tokens): outputs == tokens,
            MessagePart("torch_max_norm"): source_embedding.max_norm is None and target_embedding.max_norm is None,
            MessagePart("torch_one_final_norm"): (final[0] is None) == (final[1] is None),
            MessagePart("torch_attention_options"): plain_attention,
            MessagePart("torch_activation_unknown"): all(_activation(each) for each in layers),
            MessagePart("torch_layers_differ"): same_layers,
            MessagePart("torch_epsilons_differ", values=sorted(epsilons)): len(epsilons) == 1,
        }
    )


def _stacks(transformer: nn.Transformer) -> tuple[Sequence[Any], Sequence[Any]]:
    return (
        list(getattr(transformer.encoder, "layers", ())),
        list(getattr(transformer.decoder, "layers", ())),
    )


def _find_replaced_modules(
    transformer: nn.Transformer, layers: Sequence[Any], embeddings_and_output: Mapping[str, nn.Module]
) -> Iterator[MessagePart]:
    """Yield a reason for each module with another `forward` than torch. Subclasses that keep `forward` are accepted."""
    parts = [("encoder", transformer.encoder), ("decoder", transformer.decoder), *embeddings_and_output.items()]
    parts += [("linear", each) for layer in layers for each in (layer.linear1, layer.linear2)]
    parts += [("attention", each) for layer in layers for each in _attentions(layer)]
    parts += [("norm", each) for layer in layers for each in _norms(layer)]
    parts += [("norm", each) for each in (transformer.encoder.norm, transformer.decoder.norm) if each is not None]
    for name, part in parts:
        ours = _EXPECTED_CLASSES[name]
        if not (isinstance(part, ours) and type(part).forward is ours.forward):
            yield MessagePart("torch_module_replaced", part=name, found=_class_name(part), expected=ours.__name__)


def _class_name(module: object) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _layer_settings(layer: Any) -> tuple[object, ...]:
    return layer.linear1.out_features, layer.linear2.in_features, _activation(layer), layer.norm_first


def _attentions(layer: Any) -> list[nn.MultiheadAttention]:
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    return [layer.self_attn, *([layer.multihead_attn] if cross else [])]


def _is_plain(attention: nn.MultiheadAttention, width: int) -> bool:
    has_one_matrix = attention.in_proj_weight is not None and attention.embed_dim == width
    return has_one_matrix and attention.bias_k is None and not attention.add_zero_attn


def _norms(layer: Any) -> list[Any]:
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    return [layer.norm1, layer.norm2, *([layer.norm3] if cross else [])]


def _activation(layer: Any) -> str | None:
    activation: Callable[..., Tensor] = layer.activation
    if isinstance(activation, nn.GELU) and activation.approximate != "none":
        return None
    return _ACTIVATION_MODULES.get(type(activation)) or _ACTIVATIONS.get(activation)


def _tie(source: nn.Embedding, target: nn.Embedding, output: nn.Linear) -> str:
    if output.weight is not target.weight:
        return "none"
    return "all" if source.weight is target.weight else "output"


def _position_settings(positions: AddedPositions | None, width: int) -> dict[str, Any]:
    if positions is None:
        return {"positions": "none"}
    source, target = positions.source_table, positions.target_table
    if positions.layout is not None and source is target is None:
        return {"positions": "sinusoidal", "position_layout": positions.layout, "position_offset": positions.offset}
    if positions.layout is not None or source is None or target is None or source.shape != target.shape:
        raise ModelError("position_arguments_invalid")
    if source.dim() != 2 or source.size(1) != width or not 0 <= positions.offset < len(source):
        raise ModelError("position_table_shape_invalid", width=width, offset=positions.offset, shape=list(source.shape))
    return {"positions": "learned", "position_offset": positions.offset, "max_length": len(source) - positions.offset}


def _set_positions(network: Transformer, positions: AddedPositions | None) -> None:
    if positions is None or positions.source_table is None or positions.target_table is None:
        return
    assert network.source is not None
    for embedding, table in ((network.source, positions.source_table), (network.target, positions.target_table)):
        with torch.no_grad():
            embedding.positions.get_parameter("table").copy_(table)


def _module_pairs(
    network: Transformer,
    transformer: nn.Transformer,
    embeddings_and_output: tuple[nn.Embedding, nn.Embedding, nn.Linear],
) -> Iterator[tuple[nn.Module, Any]]:
    """Yield pairs of an attendo module and its torch counterpart."""
    assert network.source is not None
    yield from zip((network.source.tokens, network.target.tokens, network.output), embeddings_and_output, strict=True)
    if network.config.has_final_norm:
        yield from (
            (network.encoder_norm, transformer.encoder.norm),
            (network.decoder_norm, transformer.decoder.norm),
        )
    for ours, theirs in zip((network.encoder, network.decoder), _stacks(transformer), strict=True):
        for block, layer in zip(ours, theirs, strict=True):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            yield from _layer_pairs(block, layer)


def _layer_pairs(block: EncoderBlock | DecoderBlock, layer: Any) -> Iterator[tuple[nn.Module, Any]]:
    yield block.self_attention, layer.self_attn
    yield block.self_residual.normalise, layer.norm1
    yield block.feed_forward.expand, layer.linear1
    yield block.feed_forward.contract, layer.linear2
    if isinstance(block, DecoderBlock):
        assert block.cross_attention is not None
        assert block.cross_residual is not None
        yield block.cross_attention, layer.multihead_attn
        yield block.cross_residual.normalise, layer.norm2
        yield block.feed_forward_residual.normalise, layer.norm3
    else:
        yield block.feed_forward_residual.normalise, layer.norm2


@torch.no_grad()
def _copy_module(module: nn.Module, torch_module: Any) -> None:
    """Copy the parameters. A bias that torch's module lacks is set to zero."""
    if isinstance(module, MultiHeadAttention):
        _copy_weights(module.project, torch_module.in_proj_weight, torch_module.in_proj_bias)
        _copy_weights(module.output, torch_module.out_proj.weight, torch_module.out_proj.bias)
    else:
        _copy_weights(module, torch_module.weight, getattr(torch_module, "bias", None))


def _copy_weights(module: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    module.get_parameter("weight").copy_(weight)
    if getattr(module, "bias", None) is not None:
        own = module.get_parameter("bias")
        own.copy_(torch.zeros_like(own) if bias is None else bias)
