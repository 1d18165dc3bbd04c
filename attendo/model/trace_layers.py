"""Sub-layers of a trace with every formula written out, and the recorder of their tensors.

Tensors hold one sentence: [T, D], or [H, T, K] for heads. This module uses only the network's weights, not its code. A
test can thus compare the two computations.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.model.edits import NetworkEdits
from attendo.model.head_scaling import ScaledHeads
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.feedforward import FeedForward
from attendo.nn.residual import Residual
from attendo.nn.ssru import SSRU

Shape = tuple[int, ...]
_ACTIVATIONS_OF_GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
_LAYER = re.compile(r"(?:encoder|decoder)\.(\d+)\.")


@dataclass(frozen=True, eq=False)
class TracedTensor:
    """One tensor with its formula and the shapes of the operands."""

    name: str  # such as decoder.0.cross.scores
    formula: str  # its key in the catalogue of formulas
    value: Tensor
    operands: tuple[Shape, ...] = ()
    letter: str = "X"  # symbol of the input vectors in the formula: X encoder, Y decoder, Z memory
    inputs: tuple[Tensor, ...] = ()  # the operands, if the recorder keeps those of this tensor

    @property
    def shape(self) -> Shape:
        return tuple(self.value.shape)

    @property
    def site(self) -> str:
        """The name without its last part: `decoder.0.cross`."""
        return self.name.rpartition(".")[0]


class TraceRecorder:
    """Stores every recorded tensor, or only those of one layer. It also knows the edits of the run.

    `layer` limits it to one layer, for texts too long for all layers. The tensors named in `inputs_of` keep their
    operands, weights too.
    """

    def __init__(
        self, layer: int | None = None, edits: NetworkEdits | None = None, inputs_of: Collection[str] = ()
    ) -> None:
        self.entries: dict[str, TracedTensor] = {}
        self.edits = edits or NetworkEdits()
        self.layer, self._inputs_of = layer, inputs_of

    def record(
        self, name: str, formula: str, value: Tensor, operands: Sequence[Tensor | Shape] = (), letter: str = "X"
    ) -> Tensor:
        """Store the value and return it."""
        found = _LAYER.match(name)
        if self.layer is None or found is None or int(found[1]) == self.layer:
            shapes = tuple(tuple(each.shape) if isinstance(each, Tensor) else each for each in operands)
            inputs = tuple(each for each in operands if isinstance(each, Tensor)) if name in self._inputs_of else ()
            self.entries[name] = TracedTensor(name, formula, value, shapes, letter, inputs)
        return value


@dataclass(frozen=True)
class Activations:
    """Vectors in a stack, and their symbol in formulas."""

    vectors: Float[Tensor, "T D"]
    letter: str


@dataclass(frozen=True)
class AttentionContext:
    """The mask, the head scales, and the angles or biases of positions of an attention."""

    visible: Bool[Tensor, "T S"]
    mask_formula: str  # its key in the catalogue of formulas
    scales: ScaledHeads
    angles: Float[Tensor, "T half"] | None = None
    biases: Float[Tensor, "N H"] | None = None  # of relative positions: one row per bucket
    buckets: Int[Tensor, "T S"] | None = None
    source: Activations | None = None  # the memory of merged attention; the mask has its columns first


def enter(recorder: TraceRecorder, site: str, residual: Residual, activations: Activations) -> Activations:
    """Return the input of the sub-layer: with pre-norm, the normalised vectors."""
    if not residual.pre_norm:
        return activations
    return Activations(norm(recorder, f"{site}.norm", residual.normalise, activations), _hat(activations.letter))


def leave(
    recorder: TraceRecorder, site: str, residual: Residual, activations: Activations, output: Float[Tensor, "T D"]
) -> Activations:
    """Return x + Sublayer(x), normalised with post-norm. A disabled sub-layer returns x, without the norm."""
    x, letter = activations.vectors, activations.letter
    if residual.normalise_output is not None:
        output = norm(recorder, f"{site}.normed_output", residual.normalise_output, Activations(output, "F"))
    if recorder.edits.disables(site):
        recorder.record(f"{site}.output", "disabled", torch.zeros_like(x))
        recorder.record(f"{site}.residual", "passed_on", x, (x,), letter)
        return Activations(
            x if residual.pre_norm else recorder.record(f"{site}.norm", "passed_on", x, (x,), letter), letter
        )
    formula = "residual_pre" if residual.pre_norm else "residual"
    formula = "residual_sandwich" if residual.normalise_output is not None else formula
    summed = Activations(recorder.record(f"{site}.residual", formula, x + output, (x, output), letter), letter)
    if residual.pre_norm:
        return summed
    return Activations(norm(recorder, f"{site}.norm", residual.normalise, summed), letter)


def norm(recorder: TraceRecorder, name: str, module: nn.Module, activations: Activations) -> Float[Tensor, "T D"]:
    """Normalise each vector: layer norm, or RMS norm without mean and bias."""
    x, letter = activations.vectors, activations.letter
    if isinstance(module, nn.LayerNorm):
        gain, bias = cast_like(module.weight, x), cast_like(module.bias, x)
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x - mean).square().mean(dim=-1, keepdim=True)
        value = (x - mean) / (variance + module.eps).sqrt() * gain + bias
        return recorder.record(name, "layer_norm", value, (x, gain, bias), letter)
    assert isinstance(module, nn.RMSNorm)
    assert module.eps is not None
    gain = cast_like(module.weight, x)
    value = x / (x.square().mean(dim=-1, keepdim=True) + module.eps).sqrt() * gain
    return recorder.record(name, "rms_norm", value, (x, gain), letter)


def attention(
    recorder: TraceRecorder,
    module: MultiHeadAttention,
    query_input: Activations,
    memory: Activations,
    context: AttentionContext,
) -> Float[Tensor, "T D"]:
    """Compute queries from `query_input`, and keys and values from `memory`. In self-attention both are the same."""
    site = module.site
    queries, keys = (_project_normed(recorder, module, *each) for each in (("queries", query_input), ("keys", memory)))
    values = _project(recorder, module, "values", memory)
    if context.angles is not None:
        queries = recorder.record(
            f"{site}.turned_queries", "turn", apply_rotary(queries, context.angles), (queries, context.angles)
        )
        keys = recorder.record(
            f"{site}.turned_keys", "turn_keys", apply_rotary(keys, context.angles), (keys, context.angles)
        )
    if context.source is not None:
        keys, values = _join_source(recorder, module, context.source, keys, values)
    if module.num_kv_heads < module.num_heads:
        keys, values = (_share(recorder, module, *each) for each in (("keys", keys), ("values", values)))
    products = recorder.record(f"{site}.products", "products", queries @ keys.transpose(-2, -1), (queries, keys.mT))
    scores = _scores(recorder, module, products, context)
    visible = recorder.edits.edit_mask(site, context.visible, module.num_heads)
    masked = scores.masked_fill(~visible, -math.inf)
    recorder.record(f"{site}.masked", context.mask_formula, masked, (scores, visible))
    weights = _weights(recorder, site, masked, visible)
    factors = context.scales.factors(site, weights)
    as_it_is = bool((factors == 1).all())
    operands = (weights, values) if as_it_is else (factors, weights, values)
    mixed = recorder.record(
        f"{site}.mixed", "mixed" if as_it_is else "scaled_mixed", factors * weights @ values, operands
    )
    joined = torch.cat(list(mixed), dim=-1)  # [H, T, Kv] -> [T, H * Kv]
    return _linear(recorder, f"{site}.output", "heads_joined", module.output, Activations(joined, "X"))


def _project_normed(
    recorder: TraceRecorder, module: MultiHeadAttention, role: str, activations: Activations
) -> Float[Tensor, "G T K"]:
    """Return the queries or keys of all heads, normalised if the network does that."""
    heads, module_norm = _project(recorder, module, role, activations), module.query_norm
    if "keys" in role:
        module_norm = module.key_norm
    if module_norm is None:
        return heads
    letter = "Q" if role == "queries" else "K"
    return norm(recorder, f"{module.site}.normed_{role}", module_norm, Activations(heads, letter))


def _join_source(
    recorder: TraceRecorder,
    module: MultiHeadAttention,
    source: Activations,
    keys: Float[Tensor, "G T K"],
    values: Float[Tensor, "G T Kv"],
) -> tuple[Float[Tensor, "G P K"], Float[Tensor, "G P Kv"]]:
    """Put the keys and values of the source before those of the target. They are not turned."""
    site = module.site
    of_source = _project_normed(recorder, module, "source_keys", source)
    joined_keys = torch.cat((of_source, keys), dim=1)
    recorder.record(f"{site}.joined_keys", "joined_keys", joined_keys, (of_source, keys))
    of_source = _project(recorder, module, "source_values", source)
    joined_values = torch.cat((of_source, values), dim=1)
    return joined_keys, recorder.record(f"{site}.joined_values", "joined_values", joined_values, (of_source, values))


def _share(
    recorder: TraceRecorder, module: MultiHeadAttention, role: str, heads: Float[Tensor, "G T K"]
) -> Float[Tensor, "H T K"]:
    """Repeat the keys or values for each head of queries that shares them."""
    repeated = heads.repeat_interleave(module.num_heads // module.num_kv_heads, dim=0)
    return recorder.record(f"{module.site}.shared_{role}", f"shared_{role}", repeated, (heads,))


def _weights(
    recorder: TraceRecorder, site: str, masked: Float[Tensor, "H T S"], visible: Bool[Tensor, "*H T S"]
) -> Float[Tensor, "H T S"]:
    """Return the softmax of each row. A row without visible keys has only zeros."""
    weights = softmax(masked)
    if not visible.any(-1).all():
        weights = weights.masked_fill(~visible.any(-1, keepdim=True), 0.0)
    edited = recorder.edits.edit_weights(site, weights)
    if edited is weights:
        return recorder.record(f"{site}.weights", "softmax", weights, (masked,))
    recorder.record(f"{site}.softmax", "softmax", weights, (masked,))
    return recorder.record(f"{site}.weights", "edited_weights", edited, (weights,))


def recurrence(recorder: TraceRecorder, site: str, module: SSRU, activations: Activations) -> Float[Tensor, "T D"]:
    """Return the outputs of an SSRU. Also record how much of each token is left in each cell, as attention weights."""
    x = activations.vectors
    matrix, bias = cast_like(module.forget.weight, x).T, cast_like(module.forget.bias, x)
    forget = 1 / (1 + (-(x @ matrix + bias)).exp())
    recorder.record(f"{site}.forget", "forget", forget, (x, matrix, bias), activations.letter)
    matrix = cast_like(module.candidate.weight, x).T
    candidate = recorder.record(f"{site}.candidate", "candidate", x @ matrix, (x, matrix), activations.letter)
    shares, cells = torch.zeros(len(x), *x.shape, dtype=x.dtype, device=x.device), torch.zeros_like(x)
    for t, gate in enumerate(forget):
        if t:
            shares[t] = gate * shares[t - 1]
            cells[t] = gate * cells[t - 1]
        shares[t, t] = 1 - gate
        cells[t] += (1 - gate) * candidate[t]
    recorder.record(f"{site}.cells", "cells", cells, (forget, candidate))
    heads = torch.stack([each.mean(-1) for each in shares.chunk(module.num_heads, dim=-1)])  # [T, T, D] -> [H, T, T]
    recorder.record(f"{site}.weights", "shares", heads, (forget,))
    return recorder.record(f"{site}.output", "positive_cells", cells.clamp(min=0), (cells,))


def feed_forward(
    recorder: TraceRecorder, site: str, module: FeedForward, activations: Activations
) -> Float[Tensor, "T D"]:
    inner = _linear(recorder, f"{site}.inner", "expand", module.expand, activations)
    bent = recorder.record(f"{site}.bent", module.activation, _activate(inner, module.activation), (inner,))
    return _linear(recorder, f"{site}.output", "contract", module.contract, Activations(bent, "X"))


def _linear(
    recorder: TraceRecorder, name: str, formula: str, module: nn.Linear, activations: Activations
) -> Float[Tensor, "T E"]:
    x = activations.vectors
    matrix = cast_like(module.weight, x).T
    if module.bias is None:
        return recorder.record(name, f"{formula}_unbiased", x @ matrix, (x, matrix), activations.letter)
    bias = cast_like(module.bias, x)
    return recorder.record(name, formula, x @ matrix + bias, (x, matrix, bias), activations.letter)


def _scores(
    recorder: TraceRecorder, module: MultiHeadAttention, products: Float[Tensor, "H T S"], context: AttentionContext
) -> Float[Tensor, "H T S"]:
    """Scale the products, and add the biases of relative positions if there are any."""
    site = module.site
    if module.scale is None:
        formula, scaled = "scores", products / math.sqrt(module.d_key)
    else:
        formula, scaled = "scores_by_scale", products * module.scale
    if context.biases is None or context.buckets is None:
        return recorder.record(f"{site}.scores", formula, scaled, (products,))
    recorder.record(f"{site}.scaled", formula, scaled, (products,))
    bias = context.biases[context.buckets].permute(2, 0, 1)  # [T, S, H] -> [H, T, S]
    bias = torch.cat((bias.new_zeros(*bias.shape[:2], scaled.size(2) - bias.size(2)), bias), dim=2)  # none to a source
    recorder.record(f"{site}.bias", "relative_bias", bias, (context.biases, context.buckets))
    return recorder.record(f"{site}.scores", "biased_scores", scaled + bias, (scaled, bias))


def softmax(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Return eˢ / ∑ eˢ for each row. The largest score is subtracted to avoid overflow, which does not change the
    result.
    """
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


def apply_rotary(heads: Float[Tensor, "H T K"], angles: Float[Tensor, "T half"]) -> Float[Tensor, "H T K"]:
    """Rotate the pairs of component i and component i + K/2."""
    first, second = heads.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


def cast_like(weight: Tensor, x: Tensor) -> Tensor:
    """Cast the weight to the precision of the trace. The network may be in half precision."""
    return weight.detach().to(x.dtype)


def _project(
    recorder: TraceRecorder, module: MultiHeadAttention, role: str, activations: Activations
) -> Float[Tensor, "H T K"]:
    """Compute x·W + b for all heads together, then split into heads."""
    widths, kind = module.projected_widths, role.removeprefix("source_")
    part = ("queries", "keys", "values").index(kind)
    begin, width, count = sum(widths[:part]), widths[part], module.num_kv_heads if part else module.num_heads
    x = activations.vectors
    matrix = cast_like(module.project.weight[begin : begin + width], x).T
    flat, formula = x @ matrix, f"{kind}_unbiased"
    added: tuple[Tensor, ...] = ()
    if module.project.bias is not None:
        bias = cast_like(module.project.bias[begin : begin + width], x)
        flat, formula, added = flat + bias, kind, (bias,)
    heads = torch.stack(flat.chunk(count, dim=-1))  # [T, H * K] -> [H, T, K]
    return recorder.record(f"{module.site}.{role}", formula, heads, (x, matrix, *added, flat), activations.letter)


def _activate(inner: Float[Tensor, "T F"], activation: str) -> Float[Tensor, "T E"]:
    match activation:
        case "relu":
            return inner.clamp(min=0)
        case "gelu":
            return inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        case "gelu_tanh":
            return inner * (1 + (math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)).tanh()) / 2
        case "silu":
            return inner / (1 + (-inner).exp())
        case _:
            gate, value = inner.chunk(2, dim=-1)
            return _activate(gate, _ACTIVATIONS_OF_GATES[activation]) * value


def _hat(letter: str) -> str:
    """Add a circumflex to the symbol of normalised vectors."""
    return letter + "\u0302"
