"""Description of a network: every operation with its shapes and number of parameters.

Parameters are counted on a network on PyTorch's meta device.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from attendo.errors import LocalizedText, UsageError
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.parallel import ParallelTransformer
from attendo.model.prefix import PrefixTransformer
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.feedforward import FeedForward
from attendo.nn.links import Links
from attendo.nn.positions import RelativePositions
from attendo.nn.residual import Residual
from attendo.nn.ssru import SSRU

Shape = tuple[int, ...]
_INITIALISERS = ("normal", "uniform", "xavier_uniform", "kaiming_uniform", "ones", "zeros")


@dataclass(frozen=True)
class NetworkOperation:
    """One operation. `shared_with` names the part whose weights it shares; they are counted in that part."""

    operation: str
    input: Shape
    output: Shape
    parameters: int = 0
    shared_with: str | None = None


@dataclass(frozen=True)
class NetworkPart:
    """A part that the network contains `times` times. `rows` and `parameters` describe one copy."""

    name: str
    rows: tuple[NetworkOperation, ...]
    times: int = 1

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self.rows)


@dataclass(frozen=True)
class Description:
    parts: tuple[NetworkPart, ...]
    source_length: int
    target_length: int

    @property
    def parameters(self) -> int:
        return sum(part.parameters * part.times for part in self.parts)


def describe(config: ModelConfig, source_length: int = 7, target_length: int = 5) -> Description:
    """Return the parts of the network in the order of computation."""
    with torch.device("meta"), _SkipInitialisation():
        network = make_network(config)
    for length in (target_length,) if config.continues_text else (source_length, target_length):
        if config.positions == "learned" and length > config.max_length:
            raise UsageError("sequence_exceeds_max_length", count=length, max_length=config.max_length)
    parts = []
    if network.source is not None:
        shared = "target" if config.ties_inputs else None
        parts.append(NetworkPart("source", tuple(_embedding(network.source, source_length, shared))))
        block = network.encoder[0]
        assert isinstance(block, EncoderBlock)
        rows = tuple(_encoder_block(block, source_length))
        parts.append(NetworkPart("encoder layer", rows, config.num_encoder_layers))
        parts += _final_norm(LocalizedText("encoder"), network.encoder_norm, source_length, config.d_model)
    if isinstance(network, ParallelTransformer):
        target_length = network.canvas_size(source_length) if network.upsample else target_length
        parts += _length_head(network, source_length)
    row_length = target_length
    if isinstance(network, PrefixTransformer):  # one row, of which only the target has outputs
        row_length += source_length
        parts.append(NetworkPart("source and target", tuple(_row(network, row_length))))
    else:
        parts.append(NetworkPart("target", tuple(_target(network, source_length, target_length))))
    decoder_block = network.decoder[0]
    assert isinstance(decoder_block, DecoderBlock)
    causal = config.kind == "autoregressive"
    memory_length = 0 if config.decoder_only else source_length
    rows = tuple(_decoder_block(decoder_block, memory_length, row_length, causal))
    parts.append(NetworkPart("decoder layer", rows, config.num_decoder_layers))
    parts += _final_norm(LocalizedText("decoder"), network.decoder_norm, target_length, config.d_model)
    parts.append(NetworkPart("output", tuple(_output(network, target_length))))
    if isinstance(network, ParallelTransformer) and network.links is not None:
        parts.append(NetworkPart("links", tuple(_links(network.links, target_length, config.d_model))))
    return Description(tuple(parts), source_length, target_length)


class _SkipInitialisation(TorchFunctionMode):
    """Skips weight initialisation: on the meta device `normal_` imports torch._dynamo, which needs seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__.endswith("_") and func.__name__.removesuffix("_") in _INITIALISERS:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def _embedding(embedding: Embedding, length: int, shared_with: str | None) -> Iterator[NetworkOperation]:
    width = embedding.tokens.embedding_dim
    size = 0 if shared_with else embedding.tokens.weight.numel()
    scale = " × √d_model" if embedding.scale != 1 else ""
    yield NetworkOperation(f"embedding{scale}", (length,), (length, width), size, shared_with)
    positions = embedding.positions
    if isinstance(positions, RelativePositions):
        layers, _, heads = positions.table.shape
        name = "relative positions per layer" if layers > 1 else "relative positions"
        yield NetworkOperation(name, (length, length), (heads, length, length), _count(positions))
    else:
        kind = type(positions).__name__.removesuffix("Positions").lower()
        yield NetworkOperation(
            LocalizedText("{kind} positions", kind=LocalizedText(kind)),
            (length, width),
            (length, width),
            _count(positions),
        )
    if embedding.norm is not None:
        yield NetworkOperation("norm", (length, width), (length, width), _count(embedding.norm))


def _target(network: Transformer, source_length: int, length: int) -> Iterator[NetworkOperation]:
    yield from _embedding(network.target, length, None)
    if not isinstance(network, ParallelTransformer):
        return
    width = network.config.d_model
    yield NetworkOperation("mask vector", (), (length, width), network.mask_vector.numel())
    if network.copy is not None:
        yield NetworkOperation("copy of encoder states", (source_length, width), (length, width), _count(network.copy))


def _row(network: PrefixTransformer, length: int) -> Iterator[NetworkOperation]:
    width = network.config.d_model
    yield from _embedding(network.target, length, None)
    yield NetworkOperation("segment vectors", (length, width), (length, width), network.segments.numel())


def _length_head(network: ParallelTransformer, source_length: int) -> list[NetworkPart]:
    head = network.length_head
    if head is None:
        return []
    shapes = (source_length, head.in_features), (head.out_features,)
    return [NetworkPart("length", (NetworkOperation("mean, linear", *shapes, _count(head)),))]


def _links(links: Links, length: int, width: int) -> Iterator[NetworkOperation]:
    features = (length, 2 * width)
    for name, layer in (("queries", links.query), ("keys", links.key), ("gate of heads", links.gate)):
        yield NetworkOperation(name, features, (length, layer.out_features), _count(layer))
    yield NetworkOperation("hop probabilities", (links.num_heads, length, length), (length, length))


def _encoder_block(block: EncoderBlock, length: int) -> Iterator[NetworkOperation]:
    yield from _self_attention(LocalizedText("self-attention"), block.self_attention, length)
    yield _add_and_norm(block.self_residual, length, block.self_attention.output.out_features)
    yield from _feed_forward(block.feed_forward, length)
    yield _add_and_norm(block.feed_forward_residual, length, block.feed_forward.contract.out_features)


def _decoder_block(block: DecoderBlock, source: int, target: int, causal: bool) -> Iterator[NetworkOperation]:
    width = block.feed_forward.contract.out_features
    if block.recurrence is not None:
        yield from _recurrence(block.recurrence, target)
    else:
        name = LocalizedText("masked self-attention" if causal else "self-attention")
        is_merged = block.cross_attention is None and source > 0
        yield from _self_attention(name, block.self_attention, target, source if is_merged else 0)
    yield _add_and_norm(block.self_residual, target, width)
    if block.cross_attention is not None and block.cross_residual is not None:
        yield from _cross_attention(block.cross_attention, source, target)
        yield _add_and_norm(block.cross_residual, target, width)
    yield from _feed_forward(block.feed_forward, target)
    yield _add_and_norm(block.feed_forward_residual, target, width)


def _recurrence(module: SSRU, length: int) -> Iterator[NetworkOperation]:
    shape = (length, module.forget.in_features)
    yield NetworkOperation("SSRU forget gate", shape, shape, _count(module.forget))
    yield NetworkOperation("SSRU candidate", shape, shape, _count(module.candidate))
    yield NetworkOperation("SSRU cells", shape, shape)


def _self_attention(
    name: str, attention: MultiHeadAttention, length: int, memory: int = 0
) -> Iterator[NetworkOperation]:
    """Yield the operations of self-attention. Merged attention also reads `memory` vectors of the source."""
    project = attention.project
    projected = (length, project.out_features)
    yield NetworkOperation(
        LocalizedText("{name} Q, K, V", name=name), (length, project.in_features), projected, _count(project)
    )
    if attention.query_norm is not None and attention.key_norm is not None:
        heads = (attention.num_heads + attention.num_kv_heads, length, attention.d_key)
        norms = _count(attention.query_norm) + _count(attention.key_norm)
        yield NetworkOperation(LocalizedText("{name} norm of Q, K", name=name), heads, heads, norms)
    yield from _attention_output(name, attention, length, memory + length)


def _cross_attention(attention: MultiHeadAttention, source: int, target: int) -> Iterator[NetworkOperation]:
    width, queries = attention.project.in_features, attention.projected_widths[0]
    rest = attention.project.out_features - queries
    per_column = width if attention.project.bias is None else width + 1
    yield NetworkOperation("cross-attention Q", (target, width), (target, queries), per_column * queries)
    yield NetworkOperation("cross-attention K, V", (source, width), (source, rest), per_column * rest)
    yield from _attention_output(LocalizedText("cross-attention"), attention, target, source)


def _attention_output(name: str, attention: MultiHeadAttention, queries: int, keys: int) -> Iterator[NetworkOperation]:
    weights, heads = (attention.num_heads, queries, keys), (queries, attention.output.in_features)
    weighting = LocalizedText("{name} weights", name=name)
    if attention.scale is not None:
        weighting = LocalizedText("{name} weights, scale {scale:g}", name=name, scale=attention.scale)
    yield NetworkOperation(weighting, (), weights)
    yield NetworkOperation(LocalizedText("{name} weights × V", name=name), weights, heads)
    yield NetworkOperation(
        LocalizedText("{name} W^O", name=name),
        heads,
        (queries, attention.output.out_features),
        _count(attention.output),
    )


def _feed_forward(network: FeedForward, length: int) -> Iterator[NetworkOperation]:
    outer, inner = network.expand.in_features, network.contract.in_features
    yield NetworkOperation(
        LocalizedText("feed-forward W₁, {activation}", activation=network.activation),
        (length, outer),
        (length, inner),
        _count(network.expand),
    )
    yield NetworkOperation("feed-forward W₂", (length, inner), (length, outer), _count(network.contract))


def _add_and_norm(residual: Residual, length: int, width: int) -> NetworkOperation:
    name = "norm before, add after" if residual.pre_norm else "add and norm"
    name = "norm before and after, add" if residual.normalise_output is not None else name
    return NetworkOperation(name, (length, width), (length, width), _count(residual))


def _final_norm(name: str, norm: nn.Module, length: int, width: int) -> list[NetworkPart]:
    if isinstance(norm, nn.Identity):
        return []
    return [
        NetworkPart(
            LocalizedText("{name} final norm", name=name),
            (NetworkOperation("norm", (length, width), (length, width), _count(norm)),),
        )
    ]


def _output(network: Transformer, length: int) -> Iterator[NetworkOperation]:
    linear, tied = network.output, network.config.ties_output
    own = _count(linear) - (linear.weight.numel() if tied else 0)
    shapes = (length, linear.in_features), (length, linear.out_features)
    table = "source and target" if isinstance(network, PrefixTransformer) else "target"
    scale = network.config.output_scale
    name = "linear" if scale == 1 else LocalizedText("× {scale:g}, linear", scale=scale)
    yield NetworkOperation(name, *shapes, own, table if tied else None)
    yield NetworkOperation("softmax", shapes[1], shapes[1])


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
