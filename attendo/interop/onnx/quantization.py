"""Int8 quantization: calibration ranges, SmoothQuant (Xiao et al. 2023), per-layer sensitivity.

x W = (x / s) (s W)        s = max |x|ᵃ / max |W|¹⁻ᵃ for each component of x

One scale serves all components of x, so that a single large one makes the rounding of all others coarse. To divide by s
costs nothing where x is linear in the last weights that make it: the gains of a norm, the values of an attention, the
product before a ReLU (SmoothQuant, Xiao et al. 2023).
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attendo.data.batch import Batch, Example, collate
from attendo.interop.onnx.graph_builder import ActivationRanges, int8_scales
from attendo.interop.onnx.layers import MEMORY
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.feedforward import FeedForward
from attendo.nn.residual import Residual
from attendo.text import CONTROL_PIECES, PAD

_ALPHA = (
    0.85  # of the sizes of x that the matrix takes over: from 0.8 on answers change equally little (docs/benchmarks.md)
)
_MIN_RELATIVE_SIZE = 0.01  # of the largest: a component that the examples leave at 0 may be anything elsewhere
InputMaxima = Mapping[Any, Tensor]
_NUM_RANDOM_EXAMPLES, _RANDOM_LENGTH = 64, 24  # of random ids, where there is nothing better
_BATCH_SIZE = 32
_NUM_SENSITIVITY_EXAMPLES = 32


@torch.no_grad()
def smooth_quant(network: Transformer, examples: Sequence[Example]) -> Transformer:
    """A copy; the examples show how large its numbers are."""
    even = copy.deepcopy(network)
    even.output.weight = nn.Parameter(even.output.weight.clone())  # where it is tied, the embedding stays as it is
    seen = max_abs(even, examples)
    for block in (*even.encoder, *even.decoder):
        assert isinstance(block, EncoderBlock | DecoderBlock)
        _smooth_attention(block.self_attention, seen)
        _smooth_norm(block.self_residual, seen[block.self_attention.project], block.self_attention.project.weight)
        _smooth_feed_forward(block.feed_forward, seen)
        _smooth_norm(block.feed_forward_residual, seen[block.feed_forward.expand], block.feed_forward.expand.weight)
    _smooth_memory(even, seen)
    _smooth(seen[even.output], [*even.decoder_norm.parameters()], [even.output.weight])
    return even


def _smooth_memory(network: Transformer, maxima: InputMaxima) -> None:
    """All layers of the decoder look at one memory."""
    matrices = []
    for block in network.decoder:
        if isinstance(block, DecoderBlock) and (attention := block.cross_attention) is not None:
            assert block.cross_residual is not None
            _smooth_attention(attention, maxima)
            width = attention.num_heads * attention.d_key
            _smooth_norm(block.cross_residual, maxima[attention], attention.project.weight[:width])
            matrices.append(attention.project.weight[width:])
    if matrices:
        _smooth(maxima[MEMORY], [*network.encoder_norm.parameters()], matrices)


def _smooth_norm(residual: Residual, input_max: Tensor, matrix: Tensor) -> None:
    if residual.pre_norm:  # else what it makes is also the path around the next sub-layer
        _smooth(input_max, [*residual.normalise.parameters()], [matrix])


def _smooth_attention(attention: MultiHeadAttention, maxima: InputMaxima) -> None:
    values = slice(2 * attention.num_heads * attention.d_key, None)
    makers = [attention.project.weight[values], attention.project.bias[values]]
    _smooth(maxima[attention.output], makers, [attention.output.weight])


def _smooth_feed_forward(module: FeedForward, maxima: InputMaxima) -> None:
    linear = {"relu": slice(None), "swiglu": slice(module.contract.in_features, None)}  # rows that it is linear in
    if (rows := linear.get(module.activation)) is not None:
        _smooth(
            maxima[module.contract], [module.expand.weight[rows], module.expand.bias[rows]], [module.contract.weight]
        )


def _smooth(input_max: Tensor, producers: Sequence[Tensor], matrices: Sequence[Tensor]) -> None:
    """`producers` make x, component by component, `matrices` are what it is multiplied by; without makers it stays."""
    if not producers:
        return
    width = torch.stack([matrix.abs().amax(0) for matrix in matrices]).amax(0)
    scale = _clamp_small(input_max) ** _ALPHA / _clamp_small(width) ** (1 - _ALPHA)
    for maker in producers:
        maker.div_(scale if maker.dim() == 1 else scale[:, None])
    for matrix in matrices:
        matrix.mul_(scale)


def _clamp_small(size: Tensor) -> Tensor:
    return size.clamp(min=max(float(size.max()) * _MIN_RELATIVE_SIZE, 1e-30))


@dataclass(frozen=True)
class MatmulSignature:
    """A function of torch that multiplies: which argument is x, which the matrix, which dimension of it is summed."""

    input_index: int
    weight_index: int
    reduced_dim: int


MATMULS: Mapping[Callable[..., Any], MatmulSignature] = {
    F.linear: MatmulSignature(0, 1, 1),
    torch._addmm_activation: MatmulSignature(1, 2, 0),
}


def activation_ranges(network: Transformer, examples: Sequence[Example]) -> ActivationRanges:
    """The largest number, by its size, at every site of the graphs."""
    return {site: float(each.max()) for site, each in max_abs(network, examples).items()}


@torch.no_grad()
def max_abs(network: Transformer, examples: Sequence[Example]) -> dict[Any, Tensor]:
    """The same for every component of what the site is given."""
    watch, was_training = _MaxAbsObserver(quantization_sites(network)), network.training
    try:
        network.eval()
        for first in range(0, len(examples), _BATCH_SIZE):
            batch = collate(examples[first : first + _BATCH_SIZE]).to(network.device)
            with watch:
                network(batch.source_ids, batch.target_ids, batch.source_mask)
    finally:
        network.train(was_training)
    return watch.max_abs


def random_examples(network: Transformer, seed: int = 1) -> list[Example]:
    """Ids by chance on both sides: for a network whose sentences nobody has."""
    generator, config = torch.Generator().manual_seed(seed), network.config
    sizes = [(max(size or 0, len(CONTROL_PIECES) + 1)) for size in (config.source_vocab_size, config.target_vocab_size)]
    length = min(_RANDOM_LENGTH, config.max_length - 1) if config.positions == "learned" else _RANDOM_LENGTH
    sides = [
        torch.randint(len(CONTROL_PIECES), size, (_NUM_RANDOM_EXAMPLES, length), generator=generator).tolist()
        for size in sizes
    ]
    return [Example(source, target) for source, target in zip(*sides, strict=True)]


class _MaxAbsObserver(TorchFunctionMode):
    """Sees every product, whoever computes it: each is known by where its matrix lies in memory."""

    def __init__(self, sites: Mapping[int, object]) -> None:
        super().__init__()
        self.max_abs: dict[Any, Tensor] = {}
        self._sites = sites

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in MATMULS:
            product = MATMULS[func]
            self._update(self._sites.get(args[product.weight_index].data_ptr()), args[product.input_index])
        return func(*args, **(kwargs or {}))

    def _update(self, site: object, x: Tensor) -> None:
        if site is not None:
            found = x.abs().flatten(0, -2).amax(0)
            self.max_abs[site] = torch.maximum(found, self.max_abs.get(site, found))


def quantization_sites(network: Transformer) -> dict[int, object]:
    """Every matrix by where it lies in memory, and the site whose x it multiplies."""
    sites: dict[int, object] = {
        module.weight.data_ptr(): module for module in network.modules() if isinstance(module, nn.Linear)
    }
    for block in network.decoder:
        if isinstance(block, DecoderBlock) and (attention := block.cross_attention) is not None:
            matrix = attention.project.weight
            sites[matrix.data_ptr()] = attention  # makes the queries, of another x than the rest
            sites[matrix[attention.num_heads * attention.d_key :].data_ptr()] = MEMORY
    return sites


@torch.no_grad()
def quantization_sensitivity(
    network: Transformer, ranges: ActivationRanges, examples: Sequence[Example]
) -> dict[Any, float]:
    """For each site, how far the next tokens' probabilities move: KL divergence, summed over the examples."""
    was_training, sites = network.training, quantization_sites(network)
    batch = collate(examples[:_NUM_SENSITIVITY_EXAMPLES]).to(network.device)
    try:
        network.eval()
        exact = _log_probs(network, batch)
        found = {}
        for site, size in ranges.items():
            with _FakeQuantize({place for place, owner in sites.items() if owner is site}, size):
                found[site] = float((exact.exp() * (exact - _log_probs(network, batch))).sum())
    finally:
        network.train(was_training)
    return found


def _log_probs(network: Transformer, batch: Batch) -> Tensor:
    """Of what follows each target token; padding is left out."""
    logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
    return logits[batch.labels != PAD].log_softmax(-1)


class _FakeQuantize(TorchFunctionMode):
    """Rounds the products with some matrices, known by where they lie in memory, as the graph does."""

    def __init__(self, matrices: set[int], max_abs: float) -> None:
        super().__init__()
        self._matrices, self._max_abs = matrices, max_abs

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in MATMULS:
            product = MATMULS[func]
            x, matrix = args[product.input_index], args[product.weight_index]
            if matrix.data_ptr() in self._matrices:
                changed = list(args)
                most = 127 if bool((x < 0).any()) else 255
                step = max(self._max_abs, 1e-30) / most
                changed[product.input_index] = (x / step).round().clamp(-most, most) * step
                changed[product.weight_index] = (
                    _fake_quantize_weight(matrix) if product.reduced_dim else _fake_quantize_weight(matrix.T).T
                )
                args = tuple(changed)
        return func(*args, **(kwargs or {}))


def _fake_quantize_weight(matrix: Tensor) -> Tensor:
    step = int8_scales(matrix)
    return (matrix / step).round() * step
