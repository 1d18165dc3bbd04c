"""Int8 quantization: calibration ranges, SmoothQuant (Xiao et al. 2023), per-layer sensitivity.

x W = (x / s) (s W)        s = max |x|ᵃ / max |W|¹⁻ᵃ for each component of x

All components of x share one scale, so a single large component makes the rounding of all others coarse. Dividing by s
costs nothing if x is linear in the last weights that produce it: the gains of a norm, the values of an attention, the
product before a ReLU.
"""

import copy
from abc import ABC, abstractmethod
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
from attendo.nn.feedforward import GATED, FeedForward
from attendo.nn.residual import Residual
from attendo.text import CONTROL_PIECES, PAD
from attendo.text_model import eval_mode

_ALPHA = (
    0.85  # share of the scale of x moved to the matrix; outputs change equally little from 0.8 on (docs/benchmarks.md)
)
_MIN_RELATIVE_SIZE = 0.01  # of the largest; a component that is 0 in all examples may be large in other data
InputMaxima = Mapping[Any, Tensor]
_NUM_RANDOM_EXAMPLES, _RANDOM_LENGTH = 64, 24  # of random ids, used if the model has no sample
_BATCH_SIZE = 32
_NUM_SENSITIVITY_EXAMPLES = 32


@torch.no_grad()
def smooth_quant(network: Transformer, examples: Sequence[Example]) -> Transformer:
    """Return a smoothed copy of the network, calibrated on the examples."""
    even = copy.deepcopy(network)
    even.output.weight = nn.Parameter(even.output.weight.clone())  # untie it: the embedding must not change
    maxima = max_abs(even, examples)
    for block in (*even.encoder, *even.decoder):
        assert isinstance(block, EncoderBlock | DecoderBlock)
        _smooth_attention(block.self_attention, maxima)
        _smooth_norm(block.self_residual, maxima[block.self_attention.project], block.self_attention.project.weight)
        _smooth_feed_forward(block.feed_forward, maxima)
        _smooth_norm(block.feed_forward_residual, maxima[block.feed_forward.expand], block.feed_forward.expand.weight)
    _smooth_memory(even, maxima)
    _smooth(maxima[even.output], [*even.decoder_norm.parameters()], [even.output.weight])
    return even


def _smooth_memory(network: Transformer, maxima: InputMaxima) -> None:
    """Smooth the memory, which all decoder layers share."""
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
    if residual.pre_norm:  # post-norm output also feeds the next residual connection
        _smooth(input_max, [*residual.normalise.parameters()], [matrix])


def _smooth_attention(attention: MultiHeadAttention, maxima: InputMaxima) -> None:
    values = slice(2 * attention.num_heads * attention.d_key, None)
    _smooth(maxima[attention.output], _rows(attention.project, values), [attention.output.weight])


def _smooth_feed_forward(module: FeedForward, maxima: InputMaxima) -> None:
    if module.activation in GATED:
        rows = slice(module.contract.in_features, None)  # the values, which are linear, unlike the gates
    elif module.activation == "relu":
        rows = slice(None)
    else:
        return
    _smooth(maxima[module.contract], _rows(module.expand, rows), [module.contract.weight])


def _rows(linear: nn.Linear, rows: slice) -> list[Tensor]:
    """Return these rows of the weight, and of the bias if there is one."""
    return [each[rows] for each in (linear.weight, linear.bias) if each is not None]


def _smooth(input_max: Tensor, producers: Sequence[Tensor], matrices: Sequence[Tensor]) -> None:
    """Divide `producers`, the weights that produce x, by s and multiply `matrices` by it. No-op without producers."""
    if not producers:
        return
    width = torch.stack([matrix.abs().amax(0) for matrix in matrices]).amax(0)
    scale = _clamp_small(input_max) ** _ALPHA / _clamp_small(width) ** (1 - _ALPHA)
    for producer in producers:
        producer.div_(scale if producer.dim() == 1 else scale[:, None])
    for matrix in matrices:
        matrix.mul_(scale)


def _clamp_small(size: Tensor) -> Tensor:
    return size.clamp(min=max(float(size.max()) * _MIN_RELATIVE_SIZE, 1e-30))


@dataclass(frozen=True)
class MatmulSignature:
    """Signature of a torch matmul: argument index of x, of the matrix, and the matrix dimension that is summed."""

    input_index: int
    weight_index: int
    reduced_dim: int


MATMULS: Mapping[Callable[..., Any], MatmulSignature] = {
    F.linear: MatmulSignature(0, 1, 1),
    torch._addmm_activation: MatmulSignature(1, 2, 0),
}


class _MatmulMode(TorchFunctionMode, ABC):
    """Calls `intercept` before every matmul. Matrices are identified by their address in memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in MATMULS:
            args = self.intercept(MATMULS[func], args)
        return func(*args, **(kwargs or {}))

    @abstractmethod
    def intercept(self, product: MatmulSignature, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments for the matmul."""


def activation_ranges(network: Transformer, examples: Sequence[Example]) -> ActivationRanges:
    """Return the largest absolute input of every quantization site."""
    return {site: float(each.max()) for site, each in max_abs(network, examples).items()}


@torch.no_grad()
def max_abs(network: Transformer, examples: Sequence[Example]) -> dict[Any, Tensor]:
    """Return the largest absolute value of every input component, by site."""
    observer = _MaxAbsObserver(quantization_sites(network))
    with eval_mode(network):
        for first in range(0, len(examples), _BATCH_SIZE):
            batch = collate(examples[first : first + _BATCH_SIZE]).to(network.device)
            with observer:
                network(batch.source_ids, batch.target_ids, batch.source_mask)
    return observer.max_abs


def random_examples(network: Transformer, seed: int = 1) -> list[Example]:
    """Return examples of random ids, for a network without sample sentences."""
    generator, config = torch.Generator().manual_seed(seed), network.config
    sizes = [(max(size or 0, len(CONTROL_PIECES) + 1)) for size in (config.source_vocab_size, config.target_vocab_size)]
    length = min(_RANDOM_LENGTH, config.max_length - 1) if config.positions == "learned" else _RANDOM_LENGTH
    sides = [
        torch.randint(len(CONTROL_PIECES), size, (_NUM_RANDOM_EXAMPLES, length), generator=generator).tolist()
        for size in sizes
    ]
    return [Example(source, target) for source, target in zip(*sides, strict=True)]


class _MaxAbsObserver(_MatmulMode):
    """Records the largest inputs of every matmul."""

    def __init__(self, sites: Mapping[int, object]) -> None:
        super().__init__()
        self.max_abs: dict[Any, Tensor] = {}
        self._sites = sites

    def intercept(self, product: MatmulSignature, args: tuple[Any, ...]) -> tuple[Any, ...]:
        site = self._sites.get(args[product.weight_index].data_ptr())
        if site is not None:
            found = args[product.input_index].abs().flatten(0, -2).amax(0)
            self.max_abs[site] = torch.maximum(found, self.max_abs.get(site, found))
        return args


def quantization_sites(network: Transformer) -> dict[int, object]:
    """Map the address of every matrix to the site whose input it multiplies."""
    sites: dict[int, object] = {
        module.weight.data_ptr(): module for module in network.modules() if isinstance(module, nn.Linear)
    }
    for block in network.decoder:
        if isinstance(block, DecoderBlock) and (attention := block.cross_attention) is not None:
            matrix = attention.project.weight
            sites[matrix.data_ptr()] = attention  # queries have another input than keys and values
            sites[matrix[attention.num_heads * attention.d_key :].data_ptr()] = MEMORY
    return sites


@torch.no_grad()
def quantization_sensitivity(
    network: Transformer, ranges: ActivationRanges, examples: Sequence[Example]
) -> dict[Any, float]:
    """Return for each site the KL divergence of next-token probabilities, summed over the examples."""
    sites, found = quantization_sites(network), {}
    batch = collate(examples[:_NUM_SENSITIVITY_EXAMPLES]).to(network.device)
    with eval_mode(network):
        exact = _log_probs(network, batch)
        for site, size in ranges.items():
            with _FakeQuantize({address for address, owner in sites.items() if owner is site}, size):
                found[site] = float((exact.exp() * (exact - _log_probs(network, batch))).sum())
    return found


def _log_probs(network: Transformer, batch: Batch) -> Tensor:
    """Return next-token log-probabilities after each target token, without padding."""
    logits = network(batch.source_ids, batch.target_ids, batch.source_mask)
    return logits[batch.labels != PAD].log_softmax(-1)


class _FakeQuantize(_MatmulMode):
    """Rounds inputs and weights of some matmuls as the graph does."""

    def __init__(self, matrices: set[int], max_abs: float) -> None:
        super().__init__()
        self._matrices, self._max_abs = matrices, max_abs

    def intercept(self, product: MatmulSignature, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, matrix = args[product.input_index], args[product.weight_index]
        if matrix.data_ptr() not in self._matrices:
            return args
        changed = list(args)
        most = 127 if bool((x < 0).any()) else 255
        step = max(self._max_abs, 1e-30) / most
        changed[product.input_index] = (x / step).round().clamp(-most, most) * step
        changed[product.weight_index] = (
            _fake_quantize_weight(matrix) if product.reduced_dim else _fake_quantize_weight(matrix.T).T
        )
        return tuple(changed)


def _fake_quantize_weight(matrix: Tensor) -> Tensor:
    step = int8_scales(matrix)
    return (matrix / step).round() * step
