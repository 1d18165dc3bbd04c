"""Trace of one sentence pair through the network, with every formula of the paper and every tensor by name.

The trace is a separate, readable computation. Tests compare its numbers with the network's for every setting.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.edits import NetworkEdits
from attendo.model.head_scaling import HeadScales, ScaledHeads
from attendo.model.parallel import Canvas, ParallelTransformer
from attendo.model.prefix import PrefixTransformer
from attendo.model.trace_layers import (
    Activations,
    AttentionContext,
    TracedTensor,
    TraceRecorder,
    attention,
    cast_like,
    enter,
    feed_forward,
    leave,
    norm,
    recurrence,
    softmax,
)
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.positions import (
    THETA,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    find_buckets,
)
from attendo.nn.residual import Residual
from attendo.nn.ssru import SSRU

_MERGED_MASKS = {"causal_mask": "merged_mask", "causal_window_mask": "merged_window_mask"}
MAX_NUMBERS = 50_000_000  # in a trace: 200 MB


@torch.no_grad()
def trace_network(
    network: Transformer,
    source_ids: Int[Tensor, " S"] | None,
    target_ids: Int[Tensor, " T"],
    heads: HeadScales | None = None,
    masked: bool = True,
    recorder: TraceRecorder | None = None,
    prompt: int = 0,
) -> dict[str, TracedTensor]:
    """Return every tensor of one run by name. A language model requires None as the source.

    The first `prompt` tokens of its target predict nothing.

    A prefix LM reads source and target as one row, so its tensors have a row for every token of both.

    `heads` scales some heads, as in {"decoder.0.cross": {3: 0.0}}. With `masked` False the decoder attends to the
    tokens that it should predict. `recorder` chooses what is stored, and has the edits of the run. Padding in its edits
    is the last ids of the source.
    """
    recorder = recorder or TraceRecorder()
    if (source_ids is None) != network.config.continues_text:
        raise UsageError("trace_source_mismatch")
    scales = ScaledHeads(heads or {})
    scales.check(network.config)
    _check_layer(network.config, recorder.layer)
    _check_size(network.config, 0 if source_ids is None else len(source_ids), len(target_ids), recorder.layer)
    recorder.edits.check(network.config)
    if network.config.prefix_lm:
        assert source_ids is not None
        vectors = _read_row(recorder, network, source_ids, target_ids, scales, masked)
    else:
        memory = None if source_ids is None else _encode(recorder, network, source_ids, scales)
        vectors = _decode(recorder, network, target_ids, memory, scales, masked, prompt)
    _predict(recorder, network, vectors)
    return recorder.entries


@torch.no_grad()
def trace_canvas(
    network: ParallelTransformer,
    source_ids: Int[Tensor, " S"],
    canvas: Canvas,
    layer: int | None = None,
    inputs_of: Collection[str] = (),
) -> dict[str, TracedTensor]:
    """Return every tensor of one pass of a network that predicts all tokens at once, as `trace_network` does."""
    _check_layer(network.config, layer)
    _check_size(network.config, len(source_ids), canvas.ids.size(1), layer)
    recorder = TraceRecorder(layer, NetworkEdits(), inputs_of)
    memory = _encode(recorder, network, source_ids, ScaledHeads({}))
    y = _embed_canvas(recorder, network, canvas, memory)
    size = y.vectors.size(0)
    context = AttentionContext(_full_mask(size, size, y.vectors), "padding_mask", ScaledHeads({}))
    y = _decode_layers(recorder, network, y, context, memory)
    _predict(recorder, network, _finish_rows(recorder, network, y, 0))
    return recorder.entries


def _embed_canvas(
    recorder: TraceRecorder, network: ParallelTransformer, canvas: Canvas, memory: Activations
) -> Activations:
    embedding, ids, given = network.target, canvas.ids[0], canvas.given[0, :, None]
    recorder.record("target.ids", "tokens", ids)
    y = torch.where(given, _lookup(embedding, ids), cast_like(network.mask_vector, memory.vectors))
    y = recorder.record("target.embedding", "canvas", y, (tuple(embedding.tokens.weight.shape), ids), "Y")
    if embedding.scale != 1:
        y = recorder.record("target.scaled", "scaled_embedding", y * embedding.scale, (y,), "Y")
    if network.copy is not None:
        weight, bias = cast_like(network.copy.weight, y), cast_like(network.copy.bias, y)
        source = (torch.arange(len(ids), device=y.device) // network.upsample).clamp(max=memory.vectors.size(0) - 1)
        copied = (memory.vectors @ weight.T + bias)[source]
        y = recorder.record("target.copied", "canvas_copy", y + copied, (y, copied), "Y")
    zeros = torch.zeros_like(y)[None]
    vectors = network.vertex_positions.add(embedding.positions.add(zeros, 0), 0)[0]
    vectors = recorder.record("target.positions", "canvas_positions", vectors, (tuple(vectors.shape),))
    name = "target.input" if embedding.norm is None else "target.sum"
    y = recorder.record(name, "input_unscaled", y + vectors, (y, vectors), "Y")
    if embedding.norm is not None:
        y = norm(recorder, "target.input", embedding.norm, Activations(y, "Y"))
    return Activations(y, "Y")


@torch.no_grad()
def encode_with_edits(
    network: Transformer, source_ids: Int[Tensor, " S"], scales: ScaledHeads, edits: NetworkEdits
) -> Float[Tensor, "S D"]:
    """Return the encoder's output of an edited network. Padding in `edits` is the last ids."""
    return _encode(TraceRecorder(None, edits), network, source_ids, scales).vectors


@torch.no_grad()
def decode_with_edits(
    network: Transformer,
    target_ids: Int[Tensor, " T"],
    memory: Float[Tensor, "S D"] | None,
    scales: ScaledHeads,
    edits: NetworkEdits,
) -> Float[Tensor, "T V"]:
    """Return the logits after each target token of an edited network."""
    recorder = TraceRecorder(None, edits)
    states = None if memory is None else Activations(memory, "Z")
    _predict(recorder, network, _decode(recorder, network, target_ids, states, scales, masked=True))
    return recorder.entries["output.logits"].value


@torch.no_grad()
def read_row_with_edits(
    network: Transformer,
    source_ids: Int[Tensor, " S"],
    target_ids: Int[Tensor, " T"],
    scales: ScaledHeads,
    edits: NetworkEdits,
) -> Float[Tensor, "T V"]:
    """Return the logits after each target token of an edited prefix LM. Padding in `edits` is the last source ids."""
    recorder = TraceRecorder(None, edits)
    _predict(recorder, network, _read_row(recorder, network, source_ids, target_ids, scales, masked=True))
    return recorder.entries["output.logits"].value


def _encode(recorder: TraceRecorder, network: Transformer, ids: Int[Tensor, " S"], scales: ScaledHeads) -> Activations:
    assert network.source is not None
    x, angles = _embed(recorder, "source", network.source, ids, "X")
    visible = recorder.edits.close_padding(_full_mask(len(ids), len(ids), x.vectors))
    context = AttentionContext(visible, "padding_mask", scales, angles)
    contexts = _layer_contexts(recorder, "source", network.source, context, len(network.encoder))
    for n, block in enumerate(network.encoder):
        assert isinstance(block, EncoderBlock)
        x = _attention_sublayer(recorder, block.self_attention, block.self_residual, x, None, contexts[n])
        x = _feed_forward_sublayer(recorder, f"encoder.{n}.feed_forward", block, x)
    return Activations(_finish(recorder, "encoder", network.encoder_norm, x), "Z")


def _decode(
    recorder: TraceRecorder,
    network: Transformer,
    ids: Int[Tensor, " T"],
    memory: Activations | None,
    scales: ScaledHeads,
    masked: bool,
    first: int = 0,
) -> Activations:
    """Return the vectors of the rows from `first` on, which predict tokens."""
    y, angles = _embed(recorder, "target", network.target, ids, "Y")
    visible = _full_mask(len(ids), len(ids), y.vectors)
    context = AttentionContext(
        visible.tril() if masked else visible, "causal_mask" if masked else "unmasked", scales, angles
    )
    y = _decode_layers(recorder, network, y, context, memory)
    return _finish_rows(recorder, network, y, first)


def _read_row(
    recorder: TraceRecorder,
    network: Transformer,
    source_ids: Int[Tensor, " S"],
    target_ids: Int[Tensor, " T"],
    scales: ScaledHeads,
    masked: bool,
) -> Activations:
    """Return the vectors of the target tokens. The network itself computes no source rows after its last attention."""
    assert isinstance(network, PrefixTransformer)
    row = PrefixRow(network.segments, len(source_ids), len(target_ids))
    y, angles = _embed(recorder, "target", network.target, torch.cat((source_ids, target_ids)), "Y", row)
    visible = _full_mask(len(row), len(row), y.vectors)
    if masked:
        visible = visible.tril()
        visible[:, : row.source] = True
        visible[: row.source, row.source :] = False
    visible[:, : row.source] = recorder.edits.close_padding(visible[:, : row.source])
    context = AttentionContext(visible, "prefix_mask" if masked else "unmasked", scales, angles)
    y = _decode_layers(recorder, network, y, context, None, row)
    return _finish_rows(recorder, network, y, row.source)


def _finish_rows(recorder: TraceRecorder, network: Transformer, y: Activations, first: int) -> Activations:
    if first:
        rows = recorder.record("decoder.target_rows", "target_rows", y.vectors[first:], (y.vectors,), y.letter)
        y = Activations(rows, y.letter)
    return Activations(_finish(recorder, "decoder", network.decoder_norm, y), "Y")


def _decode_layers(
    recorder: TraceRecorder,
    network: Transformer,
    y: Activations,
    context: AttentionContext,
    memory: Activations | None,
    row: "PrefixRow | None" = None,
) -> Activations:
    contexts = _layer_contexts(recorder, "target", network.target, context, len(network.decoder), row)
    for n, block in enumerate(network.decoder):
        assert isinstance(block, DecoderBlock)
        if block.recurrence is None:
            own = contexts[n]
            if network.config.merged_attention and memory is not None:
                own = _merge(recorder, own, memory)
            y = _attention_sublayer(recorder, block.self_attention, block.self_residual, y, None, own)
        else:
            y = _recurrence_sublayer(recorder, f"decoder.{n}.self", block.recurrence, block.self_residual, y)
        if block.cross_attention is not None and block.cross_residual is not None and memory is not None:
            is_token = _full_mask(y.vectors.size(0), memory.vectors.size(0), y.vectors)
            to_memory = AttentionContext(recorder.edits.close_padding(is_token), "padding_mask", context.scales)
            y = _attention_sublayer(recorder, block.cross_attention, block.cross_residual, y, memory, to_memory)
        y = _feed_forward_sublayer(recorder, f"decoder.{n}.feed_forward", block, y)
    return y


def _predict(recorder: TraceRecorder, network: Transformer, activations: Activations) -> None:
    y, output, scale = activations.vectors, network.output, network.config.output_scale
    if scale != 1:
        y = recorder.record("output.scaled", "scaled_output", y * scale, (y,), "Y")
    matrix, cap = cast_like(output.weight, y).T, network.config.logit_softcap
    name = "output.logits" if cap is None else "output.unbounded"
    if output.bias is None:
        logits = recorder.record(name, "logits", y @ matrix, (y, matrix), "Y")
    else:
        bias = cast_like(output.bias, y)
        logits = recorder.record(name, "logits_bias", y @ matrix + bias, (y, matrix, bias), "Y")
    if cap is not None:
        logits = recorder.record("output.logits", "bounded_logits", cap * (logits / cap).tanh(), (logits,))
    recorder.record("output.probabilities", "probabilities", softmax(logits), (logits,))


def _layer_contexts(
    recorder: TraceRecorder,
    side: str,
    embedding: Embedding,
    context: AttentionContext,
    layers: int,
    row: "PrefixRow | None" = None,
) -> list[AttentionContext]:
    """Return the context of every layer. With relative positions, each has its biases."""
    positions = embedding.positions
    if embedding.window is not None:
        return _sliding_contexts(recorder, side, embedding, context, layers)
    if not isinstance(positions, RelativePositions):
        return [context] * layers
    return _biased_contexts(recorder, side, positions, context, layers, row)


def _sliding_contexts(
    recorder: TraceRecorder, side: str, embedding: Embedding, context: AttentionContext, layers: int
) -> list[AttentionContext]:
    """Return the context of every layer. A sliding window hides far keys, and has its own angles."""
    window, positions = embedding.window, embedding.positions
    assert window is not None
    full = [context] * layers
    if isinstance(positions, RelativePositions):
        full = _biased_contexts(recorder, side, positions, context, layers)
    angles, count = context.angles, context.visible.size(0)
    position = torch.arange(count, device=context.visible.device)
    distance = position[:, None] - position
    behind, before = (window.size // 2, (window.size + 1) // 2) if window.two_sided else (0, window.size)
    visible = context.visible & (distance < before)
    if window.two_sided:
        visible = visible & (distance >= -behind)
    if isinstance(positions, RotaryPositions) and (positions.local_theta, 1) != (
        positions.theta,
        positions.scaling,
    ):
        frequencies = _frequencies(recorder, f"{side}.local_frequencies", positions, visible, is_local=True)
        assert angles is not None
        angles = _turn(recorder, f"{side}.local_angles", position, frequencies, angles.dtype)
    formula = {"padding_mask": "window_mask", "causal_mask": "causal_window_mask"}.get(context.mask_formula, "unmasked")
    sliding = [replace(each, visible=visible, angles=angles, mask_formula=formula) for each in full]
    return [sliding[n] if window.slides(n) else full[n] for n in range(layers)]


def _merge(recorder: TraceRecorder, context: AttentionContext, memory: Activations) -> AttentionContext:
    """Return the context of merged attention, with the columns of the source first."""
    shape = context.visible.size(0), memory.vectors.size(0)
    source = recorder.edits.close_padding(_full_mask(*shape, context.visible))
    visible, formula = torch.cat((source, context.visible), dim=1), context.mask_formula
    return replace(context, visible=visible, mask_formula=_MERGED_MASKS.get(formula, formula), source=memory)


def _biased_contexts(
    recorder: TraceRecorder,
    side: str,
    positions: RelativePositions,
    context: AttentionContext,
    layers: int,
    row: "PrefixRow | None" = None,
) -> list[AttentionContext]:
    position = torch.arange(context.visible.size(0), device=context.visible.device)
    position = position if row is None else row.positions(position)
    distances = position - position[:, None]
    buckets = find_buckets(distances.cpu(), positions.two_sided, positions.table.size(1), positions.max_distance)
    buckets = buckets.to(distances.device)
    tables = positions.table.detach().to(torch.promote_types(positions.table.dtype, torch.float32))
    if row is not None:  # between source and target there is no bias: a group with zeros
        buckets[row.is_between()] = tables.size(1)
        tables = torch.cat((tables, torch.zeros_like(tables[:, :1])), dim=1)
    buckets = recorder.record(f"{side}.buckets", "buckets", buckets, (distances,))
    contexts = [replace(context, biases=table, buckets=buckets) for table in tables]
    return contexts if len(contexts) == layers else contexts * layers


def _attention_sublayer(
    recorder: TraceRecorder,
    module: MultiHeadAttention,
    residual: Residual,
    activations: Activations,
    memory: Activations | None,
    context: AttentionContext,
) -> Activations:
    """Attend to `memory`, or to the input itself if it is None."""
    queries = enter(recorder, module.site, residual, activations)
    output = attention(recorder, module, queries, memory or queries, context)
    return leave(recorder, module.site, residual, activations, output)


def _recurrence_sublayer(
    recorder: TraceRecorder, site: str, module: SSRU, residual: Residual, activations: Activations
) -> Activations:
    sublayer_input = enter(recorder, site, residual, activations)
    return leave(recorder, site, residual, activations, recurrence(recorder, site, module, sublayer_input))


def _feed_forward_sublayer(
    recorder: TraceRecorder, site: str, block: EncoderBlock | DecoderBlock, activations: Activations
) -> Activations:
    residual = block.feed_forward_residual
    sublayer_input = enter(recorder, site, residual, activations)
    return leave(
        recorder, site, residual, activations, feed_forward(recorder, site, block.feed_forward, sublayer_input)
    )


def _finish(recorder: TraceRecorder, stack: str, module: nn.Module, activations: Activations) -> Float[Tensor, "T D"]:
    if isinstance(module, nn.Identity):
        return recorder.record(
            f"{stack}.output", "last_layer", activations.vectors, (activations.vectors,), activations.letter
        )
    return norm(recorder, f"{stack}.output", module, activations)


def _lookup(embedding: Embedding, ids: Int[Tensor, " T"]) -> Float[Tensor, "T D"]:
    size = embedding.tokens.num_embeddings
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise UsageError("traced_id_outside_vocabulary", size=size, last=size - 1)
    table = embedding.tokens.weight.detach()
    return table[ids].to(torch.promote_types(table.dtype, torch.float32))


@dataclass(frozen=True)
class PrefixRow:
    """The row of source and target that a prefix LM reads. Positions restart at the target."""

    segments: Float[Tensor, "2 D"]
    source: int  # tokens
    target: int

    def __len__(self) -> int:
        return self.source + self.target

    def positions(self, places: Int[Tensor, " T"]) -> Int[Tensor, " T"]:
        """Return the position of each place of the row within its side."""
        return torch.where(places < self.source, places, places - self.source)

    def is_between(self) -> Bool[Tensor, "T T"]:
        """Return which pairs of places are on different sides."""
        is_source = torch.arange(len(self), device=self.segments.device) < self.source
        return is_source != is_source[:, None]

    def repeat_segments(self, like: Tensor) -> Float[Tensor, "T D"]:
        counts = torch.tensor([self.source, self.target], device=like.device)
        return cast_like(self.segments, like).repeat_interleave(counts, dim=0)


def _embed(
    recorder: TraceRecorder,
    side: str,
    embedding: Embedding,
    ids: Int[Tensor, " T"],
    letter: str,
    row: PrefixRow | None = None,
) -> tuple[Activations, Float[Tensor, "T half"] | None]:
    """Return the first layer's input, and the rotation angles of queries and keys (rotary positions only)."""
    x, positions = _lookup(embedding, ids), embedding.positions
    recorder.record(f"{side}.ids", "tokens", ids)
    recorder.record(f"{side}.embedding", "embedding", x, (tuple(embedding.tokens.weight.shape), ids), letter)
    if embedding.scale != 1:
        x = recorder.record(f"{side}.scaled", "scaled_embedding", x * embedding.scale, (x,), letter)
    places = torch.arange(len(ids), device=x.device)
    places = places if row is None else row.positions(places)
    vectors, angles = None, None
    if isinstance(positions, SinusoidalPositions):
        vectors = _sinusoids(recorder, side, positions, x, places)
    elif isinstance(positions, LearnedPositions):
        vectors = _look_up_positions(recorder, side, positions, x, places)
    elif isinstance(positions, RotaryPositions):
        turns = _frequencies(recorder, f"{side}.frequencies", positions, x)
        angles = _turn(recorder, f"{side}.angles", places, turns, x.dtype)
    last = f"{side}.input" if embedding.norm is None else f"{side}.sum"
    name = last if row is None else f"{side}.positioned"
    if vectors is None:
        x = recorder.record(name, "input_alone", x, (x,), letter)
    else:
        formula = "input_unscaled" if embedding.scale == 1 else "input"
        x = recorder.record(name, formula, x + vectors, (x, vectors), letter)
    if row is not None:
        segments = recorder.record(f"{side}.segments", "segments", row.repeat_segments(x), (x,), letter)
        x = recorder.record(last, "input_of_side", x + segments, (x, segments), letter)
    if embedding.norm is not None:
        x = norm(recorder, f"{side}.input", embedding.norm, Activations(x, letter))
    return Activations(x, letter), angles


def _sinusoids(
    recorder: TraceRecorder,
    side: str,
    positions: SinusoidalPositions,
    x: Float[Tensor, "T D"],
    places: Int[Tensor, " T"],
) -> Float[Tensor, "T D"]:
    reaches_end = positions.layout == "fairseq"
    frequencies = _record_frequencies(recorder, f"{side}.frequencies", x.size(1), x, reaches_end)
    angles = _turn(recorder, f"{side}.angles", places + positions.offset, frequencies, x.dtype)
    if positions.layout == "interleaved":
        vectors = torch.zeros_like(x)
        vectors[:, 0::2], vectors[:, 1::2] = angles.sin(), angles.cos()
        return recorder.record(f"{side}.positions", "sinusoids", vectors, (angles,))
    return recorder.record(
        f"{side}.positions", "sinusoids_halves", torch.cat((angles.sin(), angles.cos()), 1), (angles,)
    )


def _frequencies(
    recorder: TraceRecorder, name: str, positions: RotaryPositions, like: Tensor, is_local: bool = False
) -> Float[Tensor, " half"]:
    """Return the frequencies of rotary positions, with their own base and divisor."""
    theta, scaling = (positions.local_theta, 1.0) if is_local else (positions.theta, positions.scaling)
    if (theta, scaling) == (THETA, 1):
        return _record_frequencies(recorder, name, positions.d_key, like)
    exponents = torch.arange(0, positions.d_key, 2, dtype=torch.float32, device=like.device)
    frequencies = (exponents * (-math.log(theta) / positions.d_key)).exp() / scaling
    return recorder.record(name, "rotary_frequencies", frequencies, (exponents,))


def _record_frequencies(
    recorder: TraceRecorder, name: str, width: int, like: Tensor, reaches_end: bool = False
) -> Float[Tensor, " half"]:
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=like.device)
    divisor = max(width - 2, 1) if reaches_end else width
    frequencies = (exponents * (-math.log(10_000) / divisor)).exp()
    return recorder.record(name, "frequencies", frequencies, (exponents,))


def _turn(
    recorder: TraceRecorder,
    name: str,
    places: Int[Tensor, " T"],
    frequencies: Float[Tensor, " half"],
    dtype: torch.dtype,
) -> Float[Tensor, "T half"]:
    """Return position times frequency, as a broadcast product of a column and a row."""
    column = places.float()[:, None]
    return recorder.record(name, "angles", (column * frequencies).to(dtype), (column, frequencies))


def _look_up_positions(
    recorder: TraceRecorder, side: str, positions: LearnedPositions, x: Float[Tensor, "T D"], places: Int[Tensor, " T"]
) -> Float[Tensor, "T D"]:
    length = int(places.max()) + 1 if len(places) else 0
    if length > positions.max_length:
        raise UsageError("trace_exceeds_max_length", side=side, count=length, max_length=positions.max_length)
    vectors = cast_like(positions.table[positions.offset + places], x)
    return recorder.record(f"{side}.positions", "learned_positions", vectors, (tuple(positions.table.shape),))


def _full_mask(queries: int, keys: int, like: Tensor) -> Bool[Tensor, "T S"]:
    return torch.ones(queries, keys, dtype=torch.bool, device=like.device)


def _check_layer(config: ModelConfig, layer: int | None) -> None:
    most = max(config.num_encoder_layers, config.num_decoder_layers)
    if layer is not None and not 0 <= layer < most:
        raise UsageError(
            "trace_layer_out_of_range",
            layer=layer,
            encoder_layers=config.num_encoder_layers,
            decoder_layers=config.num_decoder_layers,
        )


def _check_size(config: ModelConfig, source: int, target: int, layer: int | None) -> None:
    """Raise UsageError if the trace is too large. Count only four matrices per head, which grow quadratically."""
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    if layer is not None:
        encoder, decoder = min(encoder, 1), min(decoder, 1)
    row = target + source if config.prefix_lm else target
    cells = encoder * source * source + decoder * row * (target + source)
    numbers = 4 * config.num_heads * cells
    if numbers > MAX_NUMBERS:
        way_out = "choose one layer (layer=0, --layer 0), or " if layer is None else ""
        raise UsageError(
            "trace_too_many_numbers", source=source, target=target, count=numbers, limit=MAX_NUMBERS, fix=way_out
        )
