"""A network as two ONNX graphs: the encoder, and one decoding step of every row.

Inputs and outputs, with B sentences, S source positions, R rows (R / B adjacent rows per sentence), C positions of
cache capacity, H heads of width K, V tokens:

    encoder     source_ids [B, S], source_mask [B, S]
                -> mask [B, 1, 1, S], and per layer the cross-attention keys.0 and values.0 [B, S, H * K] ...
    step        ids [R, 1], position [1], width [1], order [B, R / B, C], mask, keys.0, values.0 ...,
                past_keys.0 and past_values.0 [R, H, C, K] ...
                -> logits [R, 1, V], log_probs [R, 1, V], present_keys.0, present_values.0 ...

`width` is R / B. The cache entry of a row at position p was written by row `order[b, w, p]` of its sentence. So beams
are reordered without moving vectors. The present keys and values must share the memory of the past ones: a step writes
only its own position.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from attendo.errors import MessagePart, ModelError
from attendo.interop.errors import find_gemma_settings, join_reasons, unmet_conditions
from attendo.interop.head_layout import HeadLayout
from attendo.interop.onnx.graph_builder import ActivationRanges, GraphBuilder
from attendo.interop.onnx.layers import (
    StepInputs,
    add_bias_to_mask,
    add_residual,
    cross_attention,
    decoder_self_attention,
    embed,
    encoder_self_attention,
    feed_forward,
    output_memory,
    relative_biases,
    rotary_tables,
)
from attendo.model.config import ModelConfig
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock

if TYPE_CHECKING:
    from onnx import ModelProto


def incompatibilities(config: ModelConfig) -> list[MessagePart]:
    """Return the reasons why the graphs cannot hold this network; empty if they can."""
    conditions = {
        MessagePart("encoder_missing"): not config.decoder_only,
        MessagePart("recurrent_decoder"): config.autoregression == "attention",
        MessagePart("sandwich_norm"): config.norm != "sandwich",
    }
    return [*unmet_conditions(conditions), *find_gemma_settings(config)]


def encoder_graph(network: Transformer, ranges: ActivationRanges | None = None) -> "ModelProto":
    """Return the graph from source ids to the cross-attention keys and values. Sites in `ranges` are int8."""
    embedding, graph, heads = (
        _require_source_embedding(network),
        GraphBuilder(ranges or {}),
        HeadLayout.from_config(network.config),
    )
    ids = graph.input("source_ids", "long", ["B", "S"])
    is_token = graph.input("source_mask", "bool", ["B", "S"])
    mask = graph.node("Unsqueeze", is_token, graph.constant([1, 2], "int64"))
    # Use a float Range: ONNX Runtime 1.31 turns a table lookup by an integer Range into a faulty Slice.
    length = graph.node("Shape", ids, start=1)
    last = graph.cast(graph.node("Squeeze", length), "float")
    positions = graph.cast(graph.node("Range", graph.constant(0.0), last, graph.constant(1.0)), "long")
    repeated_mask = _repeat_mask(graph, mask, length)
    x, turn = embed(graph, ids, embedding, positions), rotary_tables(graph, embedding, positions)
    biases = relative_biases(graph, embedding, positions, positions, len(network.encoder))
    masks = [add_bias_to_mask(graph, repeated_mask, each) for each in dict.fromkeys(biases)] or [repeated_mask]
    for n, block in enumerate(_encoder_blocks(network)):
        mask_of_layer = masks[n if len(masks) > 1 else 0]
        attention = partial(encoder_self_attention, graph, block.self_attention, heads, mask_of_layer, turn)
        x = add_residual(graph, x, block.self_residual, attention)
        x = add_residual(graph, x, block.feed_forward_residual, partial(feed_forward, graph, block.feed_forward))
    x = graph.norm(x, network.encoder_norm)
    for layer, attention_to_it in enumerate(_cross_attentions(network)):
        output_memory(graph, attention_to_it, heads, layer, x)
    graph.output("mask", "bool", ["B", 1, 1, "S"], mask)
    return graph.model()


def step_graph(network: Transformer, ranges: ActivationRanges | None = None) -> "ModelProto":
    """Return the graph of one decoding step of every row. Sites in `ranges` are int8."""
    _require_source_embedding(network)
    graph, heads = GraphBuilder(ranges or {}), HeadLayout.from_config(network.config)
    ids, position = graph.input("ids", "long", ["R", 1]), graph.input("position", "int", [1])
    mask, width = graph.input("mask", "bool", ["B", 1, 1, "S"]), graph.input("width", "int", [1])
    positions, beam_width = graph.cast(position, "long"), graph.cast(width, "long")
    ends = graph.constant([-1], "int64"), graph.constant([heads.num_heads * heads.width], "int64")
    rows = StepInputs(
        position=position,
        width=width,
        order=graph.input("order", "int", ["B", "W", "C"]),
        source_mask=_repeat_mask(graph, mask, beam_width),
        query_shape=graph.node("Concat", ends[0], beam_width, ends[1], axis=0),
        biases=_step_biases(graph, network, positions),
    )
    x, turn = embed(graph, ids, network.target, positions), rotary_tables(graph, network.target, positions)
    for layer, (block, cross) in enumerate(zip(_decoder_blocks(network), _cross_attentions(network), strict=True)):
        assert block.cross_residual is not None  # the network has an encoder
        past = partial(decoder_self_attention, graph, block.self_attention, heads, rows, turn, layer)
        x = add_residual(graph, x, block.self_residual, past)
        x = add_residual(graph, x, block.cross_residual, partial(cross_attention, graph, cross, heads, rows, layer))
        x = add_residual(graph, x, block.feed_forward_residual, partial(feed_forward, graph, block.feed_forward))
    x = graph.norm(x, network.decoder_norm)
    if network.config.output_scale != 1:
        x = graph.node("Mul", x, graph.constant(network.config.output_scale))
    logits = graph.linear(x, network.output, network.output.weight, network.output.bias)
    for name, value in (("logits", logits), ("log_probs", graph.node("LogSoftmax", logits, axis=-1))):
        graph.output(name, "float", ["R", 1, network.output.out_features], value)
    return graph.model()


def _step_biases(graph: GraphBuilder, network: Transformer, position: str) -> list[str]:
    """Return the biases of relative positions of every decoder layer, or empty names."""
    if network.config.positions != "relative":
        return [""] * len(network.decoder)
    # A float Range, for the same reason as in the encoder.
    last = graph.cast(graph.node("Squeeze", graph.node("Add", position, graph.constant([1], "int64"))), "float")
    keys = graph.cast(graph.node("Range", graph.constant(0.0), last, graph.constant(1.0)), "long")
    return relative_biases(graph, network.target, position, keys, len(network.decoder))


def _repeat_mask(graph: GraphBuilder, mask: str, times: str) -> str:
    """Repeat a mask [B, 1, 1, S] for `times` queries: [B, 1, T, S]."""
    one = graph.constant([1], "int64")
    return graph.node("Expand", mask, graph.node("Concat", one, one, times, one, axis=0))


def _require_source_embedding(network: Transformer) -> Embedding:
    if (reasons := incompatibilities(network.config)) or network.source is None:
        raise ModelError("onnx_network_unsupported", reasons=join_reasons(reasons))
    return network.source


def _encoder_blocks(network: Transformer) -> Iterator[EncoderBlock]:
    for block in network.encoder:
        assert isinstance(block, EncoderBlock)
        yield block


def _decoder_blocks(network: Transformer) -> Iterator[DecoderBlock]:
    for block in network.decoder:
        assert isinstance(block, DecoderBlock)
        yield block


def _cross_attentions(network: Transformer) -> Iterator[MultiHeadAttention]:
    for block in _decoder_blocks(network):
        assert block.cross_attention is not None  # the network has an encoder
        yield block.cross_attention
