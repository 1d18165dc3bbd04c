"""Layers of a network as ONNX nodes: embedding, attention, feed-forward network, residual connections."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attendo.interop.head_layout import Affine, HeadLayout
from attendo.interop.onnx.graph_builder import ORT_DOMAIN, Array, GraphBuilder, OnnxShape
from attendo.model.transformer import Embedding
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.feedforward import FeedForward
from attendo.nn.positions import LearnedPositions, RelativePositions, RotaryPositions, SinusoidalPositions, frequencies
from attendo.nn.residual import Residual

MEMORY = ("keys", "values")


@dataclass(frozen=True)
class RotaryTables:
    """Names of the cosines and sines of rotary positions: [T, 1, d_key / 2]."""

    cosine: str
    sine: str


@dataclass(frozen=True)
class StepInputs:
    """Names of the inputs that every decoder layer of a step uses."""

    position: str
    width: str
    order: str
    source_mask: str  # [B, 1, R / B, S]
    query_shape: str  # the shape [B, R / B, H * K]
    biases: Sequence[str]  # of relative positions in every layer, [1, H, 1, P], or empty names


def embed(graph: GraphBuilder, ids: str, embedding: Embedding, positions: str) -> str:
    """Return token embeddings [B, T, D] plus the position vectors for `positions` [T]."""
    x = graph.node("Gather", graph.table(embedding.tokens.weight.detach() * embedding.scale), ids)
    kind, width = embedding.positions, embedding.tokens.embedding_dim
    if isinstance(kind, LearnedPositions):
        x = graph.node("Add", x, graph.node("Gather", graph.table(kind.table.detach()[kind.offset :]), positions))
    elif isinstance(kind, SinusoidalPositions):
        x = graph.node("Add", x, _sinusoids(graph, positions, kind, width))
    return x if embedding.norm is None else graph.norm(x, embedding.norm)


def rotary_tables(graph: GraphBuilder, embedding: Embedding, positions: str) -> RotaryTables | None:
    kind = embedding.positions
    if not isinstance(kind, RotaryPositions):
        return None
    angles = graph.node(
        "Unsqueeze", _angles(graph, positions, frequencies(kind.d_key).numpy(), 0), graph.constant([1], "int64")
    )
    return RotaryTables(graph.node("Cos", angles), graph.node("Sin", angles))


def relative_biases(graph: GraphBuilder, embedding: Embedding, queries: str, keys: str, layers: int) -> list[str]:
    """Return the biases [1, H, T, S] of every layer for the positions of queries [T] and keys [S].

    The result is empty without relative positions. The graph has a table by distance: it does not compute buckets.
    """
    kind = embedding.positions
    if not isinstance(kind, RelativePositions):
        return []
    most = kind.max_distance
    first, last, zero, one = (graph.constant(each, "int64") for each in (-most, most, [0], [1]))
    distance = graph.node("Sub", graph.node("Unsqueeze", keys, zero), graph.node("Unsqueeze", queries, one))
    index = graph.node("Sub", graph.node("Clip", distance, first, last), first)
    biases = []
    for table in kind.by_distance(torch.arange(-most, most + 1, device=kind.table.device)):  # [H, N]
        by_head = graph.node("Gather", graph.table(table), index, axis=1)  # [H, T, S]
        biases.append(graph.node("Unsqueeze", by_head, zero))
    return biases if len(biases) == layers else biases * layers


def add_bias_to_mask(graph: GraphBuilder, mask: str, bias: str) -> str:
    """Return the bias [1, H, T, S] with a very low number where the mask [B, 1, T, S] is False."""
    return graph.node("Where", mask, bias, graph.constant(np.finfo(np.float32).min / 2))


def add_residual(graph: GraphBuilder, x: str, residual: Residual, sublayer: Callable[[str], str]) -> str:
    """Add a residual connection and its norm around a sub-layer."""
    if residual.pre_norm:
        return graph.node("Add", x, sublayer(graph.norm(x, residual.normalise)))
    return graph.norm(graph.node("Add", x, sublayer(x)), residual.normalise)


def feed_forward(graph: GraphBuilder, module: FeedForward, x: str) -> str:
    wide = graph.linear(x, module.expand, module.expand.weight, module.expand.bias)
    if module.activation == "relu":
        return graph.linear(wide, module.contract, module.contract.weight, module.contract.bias, never_negative=True)
    return graph.linear(
        graph.activate(wide, module.activation), module.contract, module.contract.weight, module.contract.bias
    )


def encoder_self_attention(
    graph: GraphBuilder,
    attention: MultiHeadAttention,
    heads: HeadLayout,
    mask: str,
    rotary: RotaryTables | None,
    x: str,
) -> str:
    mixed = _attention(graph, heads, mask, *_queries_keys_values(graph, x, attention, heads, rotary))
    return graph.linear(mixed, attention.output, *heads.output(attention))


def decoder_self_attention(
    graph: GraphBuilder,
    attention: MultiHeadAttention,
    heads: HeadLayout,
    rows: StepInputs,
    rotary: RotaryTables | None,
    layer: int,
    x: str,
) -> str:
    """Write the new keys and values into the cache in place, and attend to all cached positions."""
    new = _queries_keys_values(graph, x, attention, heads, rotary)
    cache_shape: OnnxShape = ["R", heads.num_heads, "C", heads.width]
    past = [graph.input(f"past_{kind}.{layer}", "float", cache_shape) for kind in ("keys", "values")]
    present = (f"present_keys.{layer}", f"present_values.{layer}")
    mixed, *_ = graph.nodes(
        "DecoderMaskedMultiHeadAttention",
        *(*new, "", rows.biases[layer], *past, rows.position, rows.width, rows.order),
        count=3,
        names=present,
        num_heads=heads.num_heads,
        scale=1.0,  # `_scale_queries` scales the queries
        past_present_share_buffer=1,
        domain=ORT_DOMAIN,
    )
    for name in present:
        graph.output(name, "float", cache_shape)
    return graph.linear(mixed, attention.output, *heads.output(attention))


def cross_attention(
    graph: GraphBuilder, attention: MultiHeadAttention, heads: HeadLayout, rows: StepInputs, layer: int, x: str
) -> str:
    """Attend to the source. Rows of a sentence are batched as queries, so its keys and values are not repeated."""
    queries = graph.node("Reshape", graph.linear(x, attention, *_scale_queries(attention, heads)), rows.query_shape)
    memory = [graph.input(f"{kind}.{layer}", "float", ["B", "S", heads.num_heads * heads.width]) for kind in MEMORY]
    mixed = graph.reshape(
        _attention(graph, heads, rows.source_mask, queries, *memory), -1, 1, heads.num_heads * heads.width
    )
    return graph.linear(mixed, attention.output, *heads.output(attention))


def output_memory(graph: GraphBuilder, attention: MultiHeadAttention, heads: HeadLayout, layer: int, x: str) -> None:
    """Add the keys and values of `cross_attention` as graph outputs."""
    for kind, affine in zip(MEMORY, (heads.keys(attention), heads.values(attention)), strict=True):
        each = graph.linear(x, MEMORY, *affine)
        graph.output(f"{kind}.{layer}", "float", ["B", "S", heads.num_heads * heads.width], each)


def _attention(graph: GraphBuilder, heads: HeadLayout, mask: str, queries: str, keys: str, values: str) -> str:
    """Attend with scaled queries [B, T, H * K] and mask [B, 1, T, S]. A fully masked query gives 0."""
    return graph.node(
        "Attention", queries, keys, values, mask, scale=1.0, q_num_heads=heads.num_heads, kv_num_heads=heads.num_heads
    )


def _queries_keys_values(
    graph: GraphBuilder, x: str, attention: MultiHeadAttention, heads: HeadLayout, rotary: RotaryTables | None
) -> list[str]:
    """Use three products: the output of a single one would have to be split by a copy."""
    parts = _scale_queries(attention, heads), heads.keys(attention), heads.values(attention)
    queries, keys, values = (graph.linear(x, attention.project, *each) for each in parts)
    return [_rotate(graph, queries, heads, rotary), _rotate(graph, keys, heads, rotary), values]


def _scale_queries(attention: MultiHeadAttention, heads: HeadLayout) -> Affine:
    """Return the query projection with the scale of attention, so that attention needs none."""
    return heads.queries(attention, math.sqrt(heads.d_key) if attention.scale is None else 1 / attention.scale)


def _rotate(graph: GraphBuilder, x: str, heads: HeadLayout, rotary: RotaryTables | None) -> str:
    """Rotate [B, T, H * K]: component i of a head pairs with i + d_key / 2. Zero padding is unchanged."""
    if rotary is None:
        return x
    x = graph.reshape(x, 0, 0, heads.num_heads, heads.width)
    half, rest = heads.d_key // 2, heads.width - heads.d_key
    parts = [half, half, *([rest] if rest else [])]
    first, second, *filling = graph.nodes("Split", x, graph.constant(parts, "int64"), count=len(parts), axis=-1)
    one, other = graph.node("Mul", first, rotary.cosine), graph.node("Mul", second, rotary.sine)
    third, fourth = graph.node("Mul", first, rotary.sine), graph.node("Mul", second, rotary.cosine)
    rotated = graph.node("Concat", graph.node("Sub", one, other), graph.node("Add", third, fourth), *filling, axis=-1)
    return graph.reshape(rotated, 0, 0, heads.num_heads * heads.width)


def _sinusoids(graph: GraphBuilder, positions: str, module: SinusoidalPositions, width: int) -> str:
    """Return sines and cosines [T, D] in the order of the layout."""
    numbers, half = np.arange(width), frequencies(width, reaches_end=module.layout == "fairseq").numpy()
    if module.layout == "interleaved":
        frequency, is_sine = half.repeat(2), numbers % 2 == 0
    else:
        frequency, is_sine = np.tile(half, 2), numbers < width // 2
    angles = _angles(graph, positions, frequency, module.offset)
    return graph.node("Where", graph.constant(is_sine, "bool"), graph.node("Sin", angles), graph.node("Cos", angles))


def _angles(graph: GraphBuilder, positions: str, frequency: Array, offset: int) -> str:
    """Return angles [T, N]: (position + offset) × frequency."""
    numbers = graph.cast(graph.node("Unsqueeze", positions, graph.constant([1], "int64")), "float")
    return graph.node("Mul", graph.node("Add", numbers, graph.constant(float(offset))), graph.constant(frequency))
