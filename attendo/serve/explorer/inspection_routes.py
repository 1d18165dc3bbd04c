"""Routes /trace, /mask, /operations and /calculation: attention maps, head statistics, masks, operations."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from fastapi import APIRouter
from jaxtyping import Float
from starlette.responses import Response
from torch import Tensor

from attendo.explore.calculation import Calculation
from attendo.explore.formulas.catalogue import describe_formulas
from attendo.explore.head_stats import AttentionExtent, sum_statistics
from attendo.model.config import ModelConfig
from attendo.model.edits import Padding
from attendo.model.head_scaling import ScaledHeads
from attendo.serve.explorer.formula_table import OperationTable
from attendo.serve.explorer.passes import prepare_any_model, trace_pass
from attendo.serve.explorer.pieces import describe_predictions, group_words
from attendo.serve.explorer.schemas import CalculationRequest, MaskRequest, TargetRequest, TraceRequest
from attendo.serve.explorer.search import InspectedPair, count_map_numbers, trace_fits
from attendo.serve.explorer.tasks import (
    PAGE_RESPONSES,
    CooperativeTask,
    edit_model,
    find_edits,
    parse_edits,
    parse_heads,
    run_and_respond,
)
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS
from attendo.text_model import TextModel
from attendo.text_model.trace import Trace

ATTENTION_TYPES = {
    "encoder_self": ("encoder", "self"),
    "decoder_self": ("decoder", "self"),
    "cross": ("decoder", "cross"),
    "to_source": ("decoder", "self"),  # of a decoder-only model: from its predictions to its source or prompt
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
        plain = request.model_copy(update={"heads": {}, "edits": []})
        return await run_and_respond(gateway, plain, lambda model, _, settings: _compute_mask(model, request, settings))

    @router.post("/operations", response_model=None, responses=PAGE_RESPONSES)
    async def operations(request: TargetRequest) -> Response:
        """Return every sub-layer, sum and norm with its shapes and norms, and the formulas of its operations."""
        return await run_and_respond(gateway, request, _list_operations)

    @router.post("/calculation", response_model=None, responses=PAGE_RESPONSES)
    async def calculation(request: CalculationRequest) -> Response:
        """Return a window of the result of one operation, and the numbers that its cells are computed from."""
        return await run_and_respond(gateway, request, _compute_calculation, prepare_any_model)

    return router


def _compute_trace(model: TextModel, request: TraceRequest, settings: ServeSettings) -> CooperativeTask[dict[str, Any]]:
    config = model.network.config
    check_layers(config, request.layers)
    subject = yield from InspectedPair.build(model, request, settings)
    check_map_bytes(config, subject, request.layers, settings.max_map_bytes)
    maps = AttentionMaps(subject, request.masked)
    tokens = describe_predictions(maps.logits, subject.predicted_ids, model.target_tokenizer)
    log_probability = sum(each["log_probability"] for each in tokens)
    keys = {
        "encoder_self": subject.source_ids,
        "decoder_self": subject.read_ids,
        "cross": subject.source_ids,
        "to_source": subject.read_ids[: maps.source_columns],
    }
    is_causal = request.masked and not config.prefix_lm
    return {
        "text": subject.text,
        "cut": subject.cut,
        "log_probability": log_probability,
        "loss": -log_probability / len(tokens),
        "tokens": tokens,
        **describe_attention(subject, maps, request.layers),
        "numbers": {
            kind: compute_head_stats(
                maps.stack(kind, request.layers, scaled=False),
                keys[kind],
                kind == "decoder_self" and is_causal,
                maps.stack_factors(kind, request.layers),
            )
            for kind in ATTENTION_TYPES
        },
    }


def describe_attention(subject: InspectedPair, maps: "AttentionMaps", layers: Sequence[int] | None) -> dict[str, Any]:
    """Return the pieces and words of both sides, and the maps of these layers."""
    source, target = subject.model.source_tokenizer, subject.model.target_tokenizer
    first, ids = subject.first_row, subject.source_ids
    if maps.config.decoder_only:
        source, ids = target, subject.read_ids[: maps.source_columns]
    rows = (*subject.read_ids[:first], *subject.predicted_ids)
    return {
        "first": first,
        "source": {"pieces": source.pieces(ids), "words": group_words(source, ids)},
        "target": {
            "read": target.pieces(subject.read_ids),
            "predicted": target.pieces(subject.predicted_ids),
            "words": group_words(target, subject.predicted_ids),
            "rows": target.pieces(rows),
            "row_words": group_words(target, rows),
            "read_words": group_words(target, subject.read_ids),
            "unknown": list(subject.unknown_in_target),
        },
        "unknown": list(subject.unknown),
        **encode_maps(maps, layers),
        "rollout": compute_rollout(maps),
    }


def _compute_mask(model: TextModel, request: MaskRequest, settings: ServeSettings) -> CooperativeTask[dict[str, Any]]:
    """Return the attention of one head before and after its mask, and the loss with and without this mask.

    The pair is that of the model without edits of masks, so that losses can be compared.
    """
    _check_mask(model.network.config, request)
    stack, kind = ATTENTION_TYPES[request.site]
    heads, edits = parse_heads(model.network.config, request.heads), parse_edits(model, request)
    without_cells = replace(edits, mask=())
    subject = yield from InspectedPair.build(edit_model(model, heads, without_cells), request, settings)
    no_padding_mask = replace(without_cells, padding=replace(edits.padding, masked=False))
    is_causal = request.site == "decoder_self"
    usual = subject.trace(layer=request.layer)
    edited = subject.trace(layer=request.layer, edits=edits) if edits.mask else usual
    without = subject.trace(not is_causal, request.layer, without_cells if is_causal else no_padding_mask)
    site, head = f"{stack}.{request.layer}.{kind}", request.head
    rows = usual.source_pieces if stack == "encoder" else usual.row_pieces
    columns = usual.read_pieces if is_causal else usual.source_pieces
    causal = torch.ones(len(rows), len(columns), dtype=torch.bool)
    return {
        "labels": {"rows": list(rows), "columns": list(columns)},
        "text": subject.text,
        "cut": subject.cut,
        "causal": (usual.causal_mask if is_causal else causal).tolist(),
        "padding": _find_tokens(usual, len(columns), is_causal, edits.padding),  # True: not hidden as padding
        "visible": edited[f"{site}.masked"][head].isfinite().tolist(),
        "before": edited[f"{site}.scores"][head].tolist(),
        "after": edited[f"{site}.masked"][head].tolist(),
        "weights": edited[f"{site}.weights"][head].tolist(),
        "weights_unmasked": without[f"{site}.weights"][head].tolist(),
        "loss": edited.loss,
        "loss_usual": usual.loss,
        "loss_unmasked": without.loss,
    }


def _find_tokens(trace: Trace, columns: int, is_causal: bool, padding: Padding) -> list[bool]:
    """Return for each column whether it is shown, and not hidden as padding of the source."""
    end = columns if not is_causal else trace.first_row if trace.config.prefix_lm else 0
    hidden = range(end - padding.tokens, end) if padding.masked and end else range(0)
    return [column not in hidden for column in range(columns)]


def _compute_calculation(
    model: TextModel, request: CalculationRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    if request.head >= model.network.config.num_heads:
        raise ApiError("unknown_head", head=str(request.head), count=model.network.config.num_heads)
    _, _, rest = request.operation.partition(".")
    layer, _, place = rest.partition(".")
    chosen = int(layer) if place and layer.isdecimal() and len(layer) < 4 else None
    most = max(model.network.config.num_encoder_layers, model.network.config.num_decoder_layers)
    if chosen is not None and chosen >= most:
        raise ApiError("unknown_operation", name=request.operation)
    found = yield from trace_pass(model, request, settings, 0 if chosen is None else chosen, (request.operation,))
    trace = found.trace
    if request.operation not in trace:
        raise ApiError("unknown_operation", name=request.operation)
    first = (request.row, request.column)
    calculation = Calculation(trace, request.operation, request.head, first)
    if any(start >= size for start, size in zip(first, calculation.shape, strict=True)):
        rows, columns = calculation.shape
        raise ApiError(
            "cell_out_of_range",
            row=request.row,
            column=request.column,
            name=request.operation,
            rows=rows,
            columns=columns,
        )
    return calculation.describe(found.unknown_in_target)


def _check_mask(config: ModelConfig, request: MaskRequest) -> None:
    if config.autoregression == "ssru" and request.site == "decoder_self":
        raise ApiError("recurrent_decoder_without_mask")
    if not exists(request.site, config):
        known = (each for each in ATTENTION_TYPES if exists(each, config) and each != "to_source")
        raise ApiError("unknown_site", site=request.site, known=", ".join(known))
    stack = ATTENTION_TYPES[request.site][0]
    count = config.num_encoder_layers if stack == "encoder" else config.num_decoder_layers
    if request.layer >= count:
        raise ApiError("unknown_layer", layer=request.layer, stack=stack, count=count)
    if request.head >= config.num_heads:
        raise ApiError("unknown_head", head=str(request.head), count=config.num_heads)


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
    """Attention weights [H, T, S] by sub-layer name, and the logits of the same forward pass.

    The maps carry the factors of scaled heads. All heads of a disabled sub-layer have the factor 0.
    """

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
        scales = ScaledHeads(trace.heads)
        edits = find_edits(subject.model)
        # A language model reads BOS before its prompt.
        self.first_row = trace.first_row
        self.source_columns = trace.first_row + int(self.config.continues_text) if self.config.decoder_only else 0
        self.factors = {
            site: scales.factors(site, each)[:, 0, 0] * (not edits.disables(site))
            for site, each in self.weights.items()
        }

    def select_layers(self, attention_type: str, layers: Sequence[int] | None) -> list[int]:
        if not exists(attention_type, self.config):
            return []
        in_encoder = ATTENTION_TYPES[attention_type][0] == "encoder"
        count = self.config.num_encoder_layers if in_encoder else self.config.num_decoder_layers
        return [layer for layer in range(count) if layers is None or layer in layers]

    def stack(
        self, attention_type: str, layers: Sequence[int] | None = None, scaled: bool = True
    ) -> Float[Tensor, "L H T S"]:
        found = [self.weights[site] for site in self._sites(attention_type, layers)]
        if not found:
            return torch.zeros(0, self.config.num_heads, 0, 0)
        factors = self.stack_factors(attention_type, layers)[..., None, None] if scaled else 1
        maps = torch.stack(found) * factors
        return maps[:, :, self.first_row :, : self.source_columns] if attention_type == "to_source" else maps

    def stack_factors(self, attention_type: str, layers: Sequence[int] | None = None) -> Float[Tensor, "L H"]:
        found = [self.factors[site] for site in self._sites(attention_type, layers)]
        return torch.stack(found) if found else torch.zeros(0, self.config.num_heads)

    def _sites(self, attention_type: str, layers: Sequence[int] | None) -> list[str]:
        stack, kind = ATTENTION_TYPES[attention_type]
        return [f"{stack}.{layer}.{kind}" for layer in self.select_layers(attention_type, layers)]


def exists(attention_type: str, config: ModelConfig) -> bool:
    """Return whether a model has attention of this type."""
    if attention_type == "encoder_self":
        return config.num_encoder_layers > 0
    return config.decoder_only == (attention_type == "to_source") or attention_type == "decoder_self"


def check_layers(config: ModelConfig, layers: Sequence[int] | None) -> None:
    stack = "encoder" if config.num_encoder_layers > config.num_decoder_layers else "decoder"
    count = max(config.num_encoder_layers, config.num_decoder_layers)
    for layer in layers or ():
        if layer >= count:
            raise ApiError("unknown_layer", layer=layer, stack=stack, count=count)


def check_map_bytes(config: ModelConfig, subject: InspectedPair, layers: Sequence[int] | None, max_bytes: int) -> None:
    """Raise `ApiError` if the float16 maps would exceed `max_bytes`. Called before the trace is computed."""
    size = 2 * count_map_numbers(config, subject, layers)
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
    if maps.config.decoder_only:
        return _encode_rollout(_rollout_rows(maps)[maps.first_row :, : maps.source_columns])
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
    return _encode_rollout(contributions)


def _rollout_rows(maps: AttentionMaps) -> Float[Tensor, "T T"]:
    """Return how much of each row of a decoder-only model comes from each token that it reads."""
    stacked = maps.stack("decoder_self").mean(dim=1)
    rows = torch.eye(stacked.size(-1))
    for attention in stacked:
        rows = 0.5 * rows + 0.5 * attention @ rows
    return rows


def _encode_rollout(contributions: Float[Tensor, "T S"]) -> dict[str, Any]:
    values = contributions / contributions.sum(dim=1, keepdim=True).clamp(min=1e-30)  # 0 without any attention to it
    return {"shape": list(contributions.shape), "values": values.flatten().tolist()}


def compute_head_stats(
    maps: Float[Tensor, "L H T S"],
    keys: Sequence[int],
    causal: bool = False,
    factors: Float[Tensor, "L H"] | None = None,
) -> list[list[HeadStatValues]]:
    """Return head statistics, averaged over the rows of each map. `sum_statistics` defines them.

    `keys` are the ids of the attended tokens. With `causal`, row i attends to keys up to i. A statistic without rows is
    None, as are those of a head with the factor 0.
    """
    special = torch.tensor([[token in (BOS, EOS) for token in keys]])
    shape = AttentionExtent([maps.size(-2)], [maps.size(-1)], special, causal)
    layer_stats: list[list[HeadStatValues]] = []
    for number, layer in enumerate(maps):
        found = sum_statistics(layer[None], shape)
        layer_stats.append(
            [
                {
                    name: float(values[head]) / count if count and (factors is None or factors[number, head]) else None
                    for name, (values, count) in found.items()
                }
                for head in range(maps.size(1))
            ]
        )
    return layer_stats
