"""One sentence pair through the network, every formula of the paper written out and every tensor kept by its name.

It is a calculation of its own, made to be read and looked at. That its numbers are those of the network is tested for
every setting.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.head_scaling import HeadScales, ScaledHeads
from attendo.model.trace_layers import (
    Ledger,
    Look,
    Stream,
    Traced,
    attention,
    enter,
    feed_forward,
    leave,
    like,
    norm,
    softmax,
)
from attendo.model.transformer import Embedding, Transformer
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.positions import LearnedPositions, RotaryPositions, SinusoidalPositions

MOST_NUMBERS = 50_000_000  # that a trace keeps: 200 MB


@torch.no_grad()
def trace_network(
    network: Transformer,
    source_ids: Int[Tensor, " S"] | None,
    target_ids: Int[Tensor, " T"],
    heads: HeadScales | None = None,
    masked: bool = True,
    layer: int | None = None,
) -> dict[str, Traced]:
    """Every tensor of one run, by name. A decoder-only network takes None for the source.

    `heads` scales some heads, as in {"decoder.0.cross": {3: 0.0}}. Without the mask (`masked` False) the decoder sees
    the tokens that it is to predict. `layer`: of all layers only this one is kept, where a text is too long for more.
    """
    if (source_ids is None) != network.config.decoder_only:
        raise UsageError("trace_source_mismatch")
    scales = ScaledHeads(heads or {})
    scales.check(network.config)
    _check_layer(network.config, layer)
    _check_size(network.config, 0 if source_ids is None else len(source_ids), len(target_ids), layer)
    ledger = Ledger(layer)
    memory = None if source_ids is None else _encode(ledger, network, source_ids, scales)
    vectors = _decode(ledger, network, target_ids, memory, scales, masked)
    _predict(ledger, network, vectors)
    return ledger.entries


def _encode(ledger: Ledger, network: Transformer, ids: Int[Tensor, " S"], scales: ScaledHeads) -> Stream:
    assert network.source is not None
    x, angles = _embed(ledger, "source", network.source, ids, Stream(_lookup(network.source, ids), "X"))
    look = Look(_all(len(ids), len(ids), x.vectors), "padding_mask", scales, angles)
    for n, block in enumerate(network.encoder):
        assert isinstance(block, EncoderBlock)
        place = f"encoder.{n}.self"
        given = enter(ledger, place, block.self_residual, x)
        x = leave(ledger, place, block.self_residual, x, attention(ledger, block.self_attention, given, given, look))
        x = _position_wise(ledger, f"encoder.{n}.feed_forward", block, x)
    return Stream(_finish(ledger, "encoder", network.encoder_norm, x), "Z")


def _decode(
    ledger: Ledger,
    network: Transformer,
    ids: Int[Tensor, " T"],
    memory: Stream | None,
    scales: ScaledHeads,
    masked: bool,
) -> Stream:
    y, angles = _embed(ledger, "target", network.target, ids, Stream(_lookup(network.target, ids), "Y"))
    visible = _all(len(ids), len(ids), y.vectors)
    look = Look(visible.tril() if masked else visible, "causal_mask" if masked else "unmasked", scales, angles)
    for n, block in enumerate(network.decoder):
        assert isinstance(block, DecoderBlock)
        place = f"decoder.{n}.self"
        given = enter(ledger, place, block.self_residual, y)
        y = leave(ledger, place, block.self_residual, y, attention(ledger, block.self_attention, given, given, look))
        if block.cross_attention is not None and block.cross_residual is not None and memory is not None:
            place, all_of_it = f"decoder.{n}.cross", _all(len(ids), memory.vectors.size(0), y.vectors)
            given = enter(ledger, place, block.cross_residual, y)
            seen = attention(ledger, block.cross_attention, given, memory, Look(all_of_it, "padding_mask", scales))
            y = leave(ledger, place, block.cross_residual, y, seen)
        y = _position_wise(ledger, f"decoder.{n}.feed_forward", block, y)
    return Stream(_finish(ledger, "decoder", network.decoder_norm, y), "Y")


def _predict(ledger: Ledger, network: Transformer, stream: Stream) -> None:
    y, output = stream.vectors, network.output
    matrix = like(output.weight, y).T
    if output.bias is None:
        logits = ledger.write("output.logits", "logits", y @ matrix, (y, matrix), "Y")
    else:
        bias = like(output.bias, y)
        logits = ledger.write("output.logits", "logits_bias", y @ matrix + bias, (y, matrix, bias), "Y")
    ledger.write("output.probabilities", "probabilities", softmax(logits), (logits,))


def _position_wise(ledger: Ledger, place: str, block: EncoderBlock | DecoderBlock, stream: Stream) -> Stream:
    residual = block.feed_forward_residual
    given = enter(ledger, place, residual, stream)
    return leave(ledger, place, residual, stream, feed_forward(ledger, place, block.feed_forward, given))


def _finish(ledger: Ledger, stack: str, module: nn.Module, stream: Stream) -> Float[Tensor, "T D"]:
    if isinstance(module, nn.Identity):
        return ledger.write(f"{stack}.output", "last_layer", stream.vectors, (stream.vectors,), stream.letter)
    return norm(ledger, f"{stack}.output", module, stream)


def _lookup(embedding: Embedding, ids: Int[Tensor, " T"]) -> Float[Tensor, "T D"]:
    size = embedding.tokens.num_embeddings
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise UsageError("traced_id_outside_vocabulary", size=size, last=size - 1)
    table = embedding.tokens.weight.detach()
    return table[ids].to(torch.promote_types(table.dtype, torch.float32))


def _embed(
    ledger: Ledger, side: str, embedding: Embedding, ids: Int[Tensor, " T"], rows: Stream
) -> tuple[Stream, Float[Tensor, "T half"] | None]:
    """The first layer's input, and the angles by which queries and keys are turned where positions enter there."""
    x, letter, positions = rows.vectors, rows.letter, embedding.positions
    ledger.write(f"{side}.ids", "tokens", ids)
    ledger.write(f"{side}.embedding", "embedding", x, (tuple(embedding.tokens.weight.shape), ids), letter)
    if embedding.scale != 1:
        x = ledger.write(f"{side}.scaled", "scaled_embedding", x * embedding.scale, (x,), letter)
    vectors, angles = None, None
    if isinstance(positions, SinusoidalPositions):
        vectors = _sinusoids(ledger, side, positions, x)
    elif isinstance(positions, LearnedPositions):
        vectors = _learned(ledger, side, positions, x)
    elif isinstance(positions, RotaryPositions):
        angles = _angles(ledger, side, positions.d_key, (0, len(ids)), x)
    name = f"{side}.input" if embedding.norm is None else f"{side}.sum"
    if vectors is None:
        x = ledger.write(name, "input_alone", x, (x,), letter)
    else:
        formula = "input_unscaled" if embedding.scale == 1 else "input"
        x = ledger.write(name, formula, x + vectors, (x, vectors), letter)
    if embedding.norm is not None:
        x = norm(ledger, f"{side}.input", embedding.norm, Stream(x, letter))
    return Stream(x, letter), angles


def _sinusoids(
    ledger: Ledger, side: str, positions: SinusoidalPositions, x: Float[Tensor, "T D"]
) -> Float[Tensor, "T D"]:
    first = positions.offset
    reaches_end = positions.layout == "fairseq"
    angles = _angles(ledger, side, x.size(1), (first, first + x.size(0)), x, reaches_end)
    if positions.layout == "interleaved":
        vectors = torch.zeros_like(x)
        vectors[:, 0::2], vectors[:, 1::2] = angles.sin(), angles.cos()
        return ledger.write(f"{side}.positions", "sinusoids", vectors, (angles,))
    return ledger.write(f"{side}.positions", "sinusoids_halves", torch.cat((angles.sin(), angles.cos()), 1), (angles,))


def _angles(
    ledger: Ledger, side: str, width: int, between: tuple[int, int], x: Tensor, reaches_end: bool = False
) -> Float[Tensor, "T half"]:
    """Position times frequency: a column of positions beside a row of frequencies, spread over each other."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=x.device)
    whole = max(width - 2, 1) if reaches_end else width
    frequencies = (exponents * (-math.log(10_000) / whole)).exp()
    ledger.write(f"{side}.frequencies", "frequencies", frequencies, (exponents,))
    column = torch.arange(*between, dtype=torch.float32, device=x.device)[:, None]
    return ledger.write(f"{side}.angles", "angles", (column * frequencies).to(x.dtype), (column, frequencies))


def _learned(ledger: Ledger, side: str, positions: LearnedPositions, x: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
    if x.size(0) > positions.max_length:
        raise UsageError("trace_exceeds_max_length", side=side, count=x.size(0), max_length=positions.max_length)
    vectors = like(positions.table[positions.offset : positions.offset + x.size(0)], x)
    return ledger.write(f"{side}.positions", "learned_positions", vectors, (tuple(positions.table.shape),))


def _all(queries: int, keys: int, beside: Tensor) -> Bool[Tensor, "T S"]:
    return torch.ones(queries, keys, dtype=torch.bool, device=beside.device)


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
    """Attention alone, four matrices a head: it is what grows with the square of the length."""
    encoder, decoder = (min(n, 1) if layer is not None else n for n in _layers(config))
    cells = encoder * source * source + decoder * target * (target + source)
    numbers = 4 * config.num_heads * cells
    if numbers > MOST_NUMBERS:
        way_out = "choose one layer (layer=0, --layer 0), or " if layer is None else ""
        raise UsageError(
            "trace_too_many_numbers", source=source, target=target, count=numbers, limit=MOST_NUMBERS, fix=way_out
        )


def _layers(config: ModelConfig) -> tuple[int, int]:
    return config.num_encoder_layers, config.num_decoder_layers
