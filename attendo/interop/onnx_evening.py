"""A network that computes the same with numbers of more equal size: rounded to bytes, it loses less.

    x W = (x / s) (s W)        s = max |x|ᵃ / max |W|¹⁻ᵃ for each component of x

One scale serves all components of x, so that a single large one makes the rounding of all others coarse. To divide by s
costs nothing where x is linear in the last weights that make it: the gains of a norm, the values of an attention, the
product before a ReLU (SmoothQuant, Xiao et al. 2023).
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attendo.data.batch import Example
from attendo.interop.onnx_layers import MEMORY
from attendo.interop.onnx_ranges import sizes
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.feedforward import FeedForward
from attendo.nn.residual import Residual

_SHARE = (
    0.85  # of the sizes of x that the matrix takes over: from 0.8 on answers change equally little (docs/benchmarks.md)
)
_LEAST = 0.01  # of the largest: a component that the examples leave at 0 may be anything elsewhere

Sizes = Mapping[Any, Tensor]


@torch.no_grad()
def evened(network: Transformer, examples: Sequence[Example]) -> Transformer:
    """A copy; the examples show how large its numbers are."""
    even = copy.deepcopy(network)
    even.output.weight = nn.Parameter(even.output.weight.clone())  # where it is tied, the embedding stays as it is
    seen = sizes(even, examples)
    for block in (*even.encoder, *even.decoder):
        assert isinstance(block, EncoderBlock | DecoderBlock)
        _even_attention(block.self_attention, seen)
        _even_norm(block.self_residual, seen[block.self_attention.project], block.self_attention.project.weight)
        _even_feed_forward(block.feed_forward, seen)
        _even_norm(block.feed_forward_residual, seen[block.feed_forward.expand], block.feed_forward.expand.weight)
    _even_memory(even, seen)
    _even(seen[even.output], [*even.decoder_norm.parameters()], [even.output.weight])
    return even


def _even_memory(network: Transformer, seen: Sizes) -> None:
    """All layers of the decoder look at one memory."""
    matrices = []
    for block in network.decoder:
        if isinstance(block, DecoderBlock) and (attention := block.cross_attention) is not None:
            assert block.cross_residual is not None
            _even_attention(attention, seen)
            width = attention.num_heads * attention.d_key
            _even_norm(block.cross_residual, seen[attention], attention.project.weight[:width])
            matrices.append(attention.project.weight[width:])
    if matrices:
        _even(seen[MEMORY], [*network.encoder_norm.parameters()], matrices)


def _even_norm(residual: Residual, size: Tensor, matrix: Tensor) -> None:
    if residual.pre_norm:  # else what it makes is also the path around the next sub-layer
        _even(size, [*residual.normalise.parameters()], [matrix])


def _even_attention(attention: MultiHeadAttention, seen: Sizes) -> None:
    values = slice(2 * attention.num_heads * attention.d_key, None)
    makers = [attention.project.weight[values], attention.project.bias[values]]
    _even(seen[attention.output], makers, [attention.output.weight])


def _even_feed_forward(part: FeedForward, seen: Sizes) -> None:
    linear = {"relu": slice(None), "swiglu": slice(part.contract.in_features, None)}  # rows that it is linear in
    if (rows := linear.get(part.activation)) is not None:
        _even(seen[part.contract], [part.expand.weight[rows], part.expand.bias[rows]], [part.contract.weight])


def _even(size: Tensor, makers: Sequence[Tensor], matrices: Sequence[Tensor]) -> None:
    """`makers` make x, component by component, `matrices` are what it is multiplied by; without makers it stays."""
    if not makers:
        return
    width = torch.stack([matrix.abs().amax(0) for matrix in matrices]).amax(0)
    scale = _not_tiny(size) ** _SHARE / _not_tiny(width) ** (1 - _SHARE)
    for maker in makers:
        maker.div_(scale if maker.dim() == 1 else scale[:, None])
    for matrix in matrices:
        matrix.mul_(scale)


def _not_tiny(size: Tensor) -> Tensor:
    return size.clamp(min=max(float(size.max()) * _LEAST, 1e-30))
