"""Routes /trace, /mask, /operations and /calculation: attention maps, head statistics, masks, operations."""

import base64
from collections.abc import Sequence
from typing import Any

import torch
from fastapi import APIRouter
from jaxtyping import Float
from starlette.responses import Response
from torch import Tensor

from attendo.explore.head_stats import AttentionExtent, sum_statistics
from attendo.model.config import ModelConfig
from attendo.model.trace import MAX_NUMBERS
from attendo.serve.explorer.calculation import compute_calculation
from attendo.serve.explorer.formula_table import OperationTable, describe_formulas
from attendo.serve.explorer.pieces import describe_predictions, group_words
from attendo.serve.explorer.schemas import CalculationRequest, MaskRequest, TargetRequest, TraceRequest
from attendo.serve.explorer.search import InspectedPair
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_and_respond
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS
from attendo.text_model import TextModel

ATTENTION_TYPES = {
    "encoder_self": ("encoder", "self"),
    "decoder_self": ("decoder", "self"),
    "cross": ("decoder", "cross"),
}
HeadStatValues = dict[str, float | None]


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/trace", response_model=None, responses=PAGE_RESPONSES)
    async def trace(request: TraceRequest) -> Response:
        """Return pieces, words, attention maps of all layers and heads, head statistics and predictions."""
        return await run_and_respond(gateway, request, _compute_trace)

    @router.post("/mask", response_model=None, responses=PAGE_RESPONSES)
    async def mask(request: MaskRequest) -> Response:
        """Return attention scores before and after the mask, and the loss with and without it."""
        return await run_and_respond(gateway, request, _compute_mask)

    @router.post("/operations", response_model=None, responses=PAGE_RESPONSES)
    async def operations(request: TargetRequest) -> Response:
        """Return every sub-layer, sum and norm with its shapes and norms, and the formulas of its operations."""
        return await run_and_respond(gateway, request, _list_operations)

    @router.post("/calculation", response_model=None, responses=PAGE_RESPONSES)
    async def calculation(request: CalculationRequest) -> Response:
        """Return a window of the result of one operation, and the numbers that its cells are computed from."""
        return await run_and_respond(gateway, request, compute_calculation)

    return router


def _compute_trace(model: TextModel, request: TraceRequest, settings: ServeSettings) -> CooperativeTask[dict[str, Any]]:
    config = model.network.config
    check_layers(config, request.layers)
    subject = yield from InspectedPair.build(model, request, settings)
    check_map_bytes(config, subject, request.layers, settings.max_map_bytes)
    maps = AttentionMaps(subject, request.masked)
    tokens = describe_predictions(maps.logits, subject.predicted_ids, model.target_tokenizer)
    log_probability = sum(each["log_probability"] for each in tokens)
    keys = {"encoder_self": subject.source_ids, "decoder_self": subject.read_ids, "cross": subject.source_ids}
    return {
        "text": subject.text,
        "cut": subject.cut,
        "log_probability": log_probability,
        "loss": -log_probability / len(tokens),
        "tokens": tokens,
        **describe_attention(subject, maps, request.layers),
        "numbers": {
            kind: compute_head_stats(
                maps.stack(kind, request.layers), keys[kind], causal=kind == "decoder_self" and request.masked
            )
            for kind in ATTENTION_TYPES
        },
    }


def describe_attention(subject: InspectedPair, maps: "AttentionMaps", layers: Sequence[int] | None) -> dict[str, Any]:
    """Return the pieces and words of both sides, and the maps of these layers."""
    source, target = subject.model.source_tokenizer, subject.model.target_tokenizer
    return {
        "source": {"pieces": source.pieces(subject.source_ids), "words": group_words(source, subject.source_ids)},
        "target": {
            "read": target.pieces(subject.read_ids),
            "predicted": target.pieces(subject.predicted_ids),
            "words": group_words(target, subject.predicted_ids),
            "read_words": group_words(target, subject.read_ids),
            "unknown": list(subject.unknown_in_target),
        },
        "unknown": list(subject.unknown),
        **encode_maps(maps, layers),
        "rollout": compute_rollout(maps),
    }


def _compute_mask(model: TextModel, request: MaskRequest, settings: ServeSettings) -> CooperativeTask[dict[str, Any]]:
    """Return the decoder's self-attention before and after the causal mask, and the loss with and without it."""
    config = model.network.config
    if config.autoregression == "ssru":
        raise ApiError("recurrent_decoder_without_mask")
    if request.layer >= config.num_decoder_layers:
        raise ApiError("unknown_layer", layer=request.layer, stack="decoder", count=config.num_decoder_layers)
    if request.head >= config.num_heads:
        raise ApiError("unknown_head", head=str(request.head), count=config.num_heads)
    subject = yield from InspectedPair.build(model, request, settings)
    with_mask, without = subject.trace(layer=request.layer), subject.trace(masked=False, layer=request.layer)
    site, head, size = f"decoder.{request.layer}.self", request.head, len(subject.read_ids)
    return {
        "labels": {"rows": list(with_mask.target_pieces), "columns": list(with_mask.read_pieces)},
        "text": subject.text,
        "cut": subject.cut,
        "causal": torch.ones(size, size, dtype=torch.bool).tril().tolist(),
        "padding": [True] * size,  # True: not padding; a single sentence has none
        "before": with_mask[f"{site}.scores"][head].tolist(),
        "after": with_mask[f"{site}.masked"][head].tolist(),
        "weights": with_mask[f"{site}.weights"][head].tolist(),
        "weights_unmasked": without[f"{site}.weights"][head].tolist(),
        "loss": with_mask.loss,
        "loss_unmasked": without.loss,
    }


def _list_operations(
    model: TextModel, request: TargetRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    subject = yield from InspectedPair.build(model, request, settings)
    source, target = len(subject.source_ids), len(subject.read_ids)
    if not trace_fits(model.network.config, subject):
        raise ApiError("trace_too_large", source=source, target=target)
    trace = subject.trace()
    rows = list(OperationTable(model.network, trace).rows())
    return {"rows": rows, "formulas": describe_formulas(trace), "text": subject.text, "cut": subject.cut}


class AttentionMaps:
    """Attention weights [H, T, S] by sub-layer name, and the logits of the same forward pass."""

    def __init__(self, subject: InspectedPair, masked: bool) -> None:
        self.config = subject.model.network.config
        self.weights: dict[str, Float[Tensor, "H T S"]] = {}
        # A trace stores far more than the maps. If it is too large, each layer is traced separately.
        most = max(self.config.num_encoder_layers, self.config.num_decoder_layers)
        layers: Sequence[int | None] = [None] if trace_fits(self.config, subject) else range(most)
        for layer in layers:
            trace = subject.trace(masked, layer)
            self.logits: Float[Tensor, "T V"] = trace.logits
            found = {name.removesuffix(".weights"): trace[name] for name in trace if name.endswith(".weights")}
            self.weights.update(found)

    def select_layers(self, attention_type: str, layers: Sequence[int] | None) -> list[int]:
        in_encoder = ATTENTION_TYPES[attention_type][0] == "encoder"
        count = self.config.num_encoder_layers if in_encoder else self.config.num_decoder_layers
        return [layer for layer in range(count) if layers is None or layer in layers]

    def stack(self, attention_type: str, layers: Sequence[int] | None = None) -> Float[Tensor, "L H T S"]:
        stack, sort = ATTENTION_TYPES[attention_type]
        found = [self.weights[f"{stack}.{layer}.{sort}"] for layer in self.select_layers(attention_type, layers)]
        return torch.stack(found) if found else torch.zeros(0, self.config.num_heads, 0, 0)


def check_layers(config: ModelConfig, layers: Sequence[int] | None) -> None:
    stack = "encoder" if config.num_encoder_layers > config.num_decoder_layers else "decoder"
    count = max(config.num_encoder_layers, config.num_decoder_layers)
    for layer in layers or ():
        if layer >= count:
            raise ApiError("unknown_layer", layer=layer, stack=stack, count=count)


def check_map_bytes(config: ModelConfig, subject: InspectedPair, layers: Sequence[int] | None, max_bytes: int) -> None:
    """Raise `ApiError` if the float16 maps would exceed `max_bytes`. Called before the trace is computed."""
    size = 2 * _count_map_numbers(config, subject, layers)
    if size > max_bytes:
        extra = {"choices": ["fewer layers"], "choices_zh": ["减少层数"]}
        raise ApiError("block_too_large", extra, size=size / 2**20, most=max_bytes / 2**20)


def encode_maps(maps: AttentionMaps, chosen: Sequence[int] | None) -> dict[str, Any]:
    """Return the layout of the maps and all maps concatenated as float16 in base64. Offsets count numbers."""
    layout: dict[str, Any] = {"dtype": "float16", "layers": sorted(set(chosen)) if chosen is not None else None}
    parts, offset = [], 0
    for kind in ATTENTION_TYPES:
        stacked = maps.stack(kind, chosen)
        layers = maps.select_layers(kind, chosen)
        layout[kind] = {"shape": list(stacked.shape), "offset": offset, "byte_offset": 2 * offset, "layers": layers}
        parts.append(stacked.flatten())
        offset += stacked.numel()
    if layout["layers"] is None:
        layout["layers"] = list(range(max(maps.config.num_encoder_layers, maps.config.num_decoder_layers)))
    numbers = torch.cat(parts).to(torch.float16).cpu().numpy().astype("<f2")
    return {"maps": layout, "block": base64.b64encode(numbers.tobytes()).decode("ascii")}


def compute_rollout(maps: AttentionMaps) -> dict[str, Any]:
    """Return how much of each prediction comes from each source token, over all layers.

    Attention rollout (Abnar & Zuidema 2020): half of a sub-layer's output is its input through the residual connection.
    The other half is the mean of its heads. Rows are normalised to sum to 1, because the rest of each (2⁻ᴸ with L
    layers) comes from the target itself.
    """
    source = maps.stack("encoder_self").mean(dim=1)  # [L, S, S]
    size, length = maps.weights["decoder.0.cross"].shape[2], maps.weights["decoder.0.cross"].shape[1]
    memory = torch.eye(size)
    for attention in source:
        memory = 0.5 * memory + 0.5 * attention @ memory
    contributions = torch.zeros(length, size)
    of_itself, of_memory = maps.stack("decoder_self").mean(dim=1), maps.stack("cross").mean(dim=1)
    for own, attention in zip(of_itself, of_memory, strict=True):
        contributions = 0.5 * contributions + 0.5 * own @ contributions
        contributions = 0.5 * contributions + 0.5 * attention @ memory
    values = contributions / contributions.sum(dim=1, keepdim=True)
    return {"shape": [length, size], "values": values.flatten().tolist()}


def trace_fits(config: ModelConfig, subject: InspectedPair) -> bool:
    """Return whether a trace of all layers fits within `MAX_NUMBERS`."""
    return 4 * _count_map_numbers(config, subject) <= MAX_NUMBERS


def _count_map_numbers(config: ModelConfig, subject: InspectedPair, layers: Sequence[int] | None = None) -> int:
    """Count the attention weights of these layers, by default of all."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    encoder, decoder = (
        sum(layers is None or layer in layers for layer in range(count))
        for count in (config.num_encoder_layers, config.num_decoder_layers)
    )
    return config.num_heads * (encoder * source * source + decoder * target * (target + source))


def compute_head_stats(
    maps: Float[Tensor, "L H T S"], keys: Sequence[int], causal: bool = False
) -> list[list[HeadStatValues]]:
    """Return head statistics, averaged over the rows of each map. `sum_statistics` defines them.

    `keys` are the ids of the attended tokens. With `causal`, row i attends to keys up to i. A statistic without rows is
    None.
    """
    special = torch.tensor([[token in (BOS, EOS) for token in keys]])
    shape = AttentionExtent([maps.size(-2)], [maps.size(-1)], special, causal)
    layer_stats: list[list[HeadStatValues]] = []
    for layer in maps:
        found = sum_statistics(layer[None], shape)
        layer_stats.append(
            [
                {name: float(values[head]) / count if count else None for name, (values, count) in found.items()}
                for head in range(maps.size(1))
            ]
        )
    return layer_stats
