"""Routes /trace, /mask and /ledger: attention maps, head statistics, masks, operations."""

import base64
from collections.abc import Sequence
from typing import Any

import torch
from fastapi import APIRouter
from jaxtyping import Float
from starlette.responses import Response
from torch import Tensor

from attendo.explore.head_stats import Rows, summed
from attendo.model.config import ModelConfig
from attendo.model.trace import MOST_NUMBERS
from attendo.serve.explorer.formula_table import LedgerBook
from attendo.serve.explorer.model_access import OF_PAGE, Turns, answered
from attendo.serve.explorer.pieces import predictions, words
from attendo.serve.explorer.schemas import LedgerReply, LedgerRequest, MaskReply, MaskRequest, TraceReply, TraceRequest
from attendo.serve.explorer.subject import Subject
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import Refusal
from attendo.serve.http.openapi import refusals
from attendo.serve.scheduling.gateway import Office
from attendo.serve.settings import ServeSettings
from attendo.text import BOS, EOS
from attendo.text_model import TextModel

KINDS = {"encoder_self": ("encoder", "self"), "decoder_self": ("decoder", "self"), "cross": ("decoder", "cross")}
Numbers = dict[str, float | None]


def routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])
    refused, settings = refusals("ours", *OF_PAGE), office.settings

    @router.post("/trace", response_model=None, responses={**refused, 200: {"model": TraceReply}})
    async def trace(asked: TraceRequest) -> Response:
        """Pieces, words, attention maps of all layers and heads, numbers about them, and what was expected."""
        return await answered(office, asked, lambda model: _trace(model, asked, settings))

    @router.post("/mask", response_model=None, responses={**refused, 200: {"model": MaskReply}})
    async def mask(asked: MaskRequest) -> Response:
        """Scores before and after the mask, and the loss with and without it."""
        return await answered(office, asked, lambda model: _mask(model, asked, settings))

    @router.post("/ledger", response_model=None, responses={**refused, 200: {"model": LedgerReply}})
    async def ledger(asked: LedgerRequest) -> Response:
        """Every sub-layer, sum and norm with its formula, its shapes and its numbers."""
        return await answered(office, asked, lambda model: _ledger(model, asked, settings))

    return router


def _trace(model: TextModel, asked: TraceRequest, settings: ServeSettings) -> Turns[dict[str, Any]]:
    config = model.network.config
    check_layers(config, asked.layers)
    subject = yield from Subject.of(model, asked, settings)
    check_block(config, subject, asked.layers, settings.block_bytes)
    maps = Maps(subject, asked.masked)
    source, target = model.source_tokenizer, model.target_tokenizer
    tokens = predictions(maps.logits, subject.predicted_ids, target)
    log_probability = sum(each["log_probability"] for each in tokens)
    keys = {"encoder_self": subject.source_ids, "decoder_self": subject.read_ids, "cross": subject.source_ids}
    return {
        "source": {"pieces": source.pieces(subject.source_ids), "words": words(source, subject.source_ids)},
        "target": {
            "read": target.pieces(subject.read_ids),
            "predicted": target.pieces(subject.predicted_ids),
            "words": words(target, subject.predicted_ids),
            "read_words": words(target, subject.read_ids),
            "unknown": list(subject.unknown_in_target),
        },
        "unknown": list(subject.unknown),
        "text": subject.text,
        "cut": subject.cut,
        "log_probability": log_probability,
        "loss": -log_probability / len(tokens),
        "tokens": tokens,
        **block(maps, asked.layers),
        "numbers": {
            kind: head_numbers(
                maps.stacked(kind, asked.layers), keys[kind], causal=kind == "decoder_self" and asked.masked
            )
            for kind in KINDS
        },
        "rollout": rollout(maps),
    }


def _mask(model: TextModel, asked: MaskRequest, settings: ServeSettings) -> Turns[dict[str, Any]]:
    """The decoder's self-attention before and after its mask, and what the mask is for."""
    config = model.network.config
    if asked.layer >= config.num_decoder_layers:
        raise Refusal("unknown_layer", layer=asked.layer, stack="decoder", count=config.num_decoder_layers)
    if asked.head >= config.num_heads:
        raise Refusal("unknown_head", head=str(asked.head), count=config.num_heads)
    subject = yield from Subject.of(model, asked, settings)
    with_mask, without = subject.trace(layer=asked.layer), subject.trace(masked=False, layer=asked.layer)
    place, head, size = f"decoder.{asked.layer}.self", asked.head, len(subject.read_ids)
    return {
        "labels": {"rows": list(with_mask.target_pieces), "columns": list(with_mask.read_pieces)},
        "text": subject.text,
        "cut": subject.cut,
        "causal": torch.ones(size, size, dtype=torch.bool).tril().tolist(),
        "padding": [True] * size,  # a sentence alone has none
        "before": with_mask[f"{place}.scores"][head].tolist(),
        "after": with_mask[f"{place}.masked"][head].tolist(),
        "weights": with_mask[f"{place}.weights"][head].tolist(),
        "weights_unmasked": without[f"{place}.weights"][head].tolist(),
        "loss": with_mask.loss,
        "loss_unmasked": without.loss,
    }


def _ledger(model: TextModel, asked: LedgerRequest, settings: ServeSettings) -> Turns[dict[str, Any]]:
    subject = yield from Subject.of(model, asked, settings)
    if asked.step is not None and asked.step >= len(subject.predicted_ids):
        raise Refusal("unknown_step", step=asked.step, count=len(subject.predicted_ids))
    source, target = len(subject.source_ids), len(subject.read_ids)
    if not fits(model.network.config, subject):
        raise Refusal("trace_too_large", source=source, target=target)
    trace = subject.trace(asked.masked)
    rows = list(LedgerBook(model.network, trace, asked.step).rows())
    predicted = list(trace.target_pieces)
    return {"rows": rows, "text": subject.text, "cut": subject.cut, "predicted": predicted, "step": asked.step}


class Maps:
    """The weights of every attention by its place, [H, T, S], and the logits of the same run."""

    def __init__(self, subject: Subject, masked: bool) -> None:
        self.config = subject.model.network.config
        self.weights: dict[str, Float[Tensor, "H T S"]] = {}
        # A trace keeps far more than the maps: where that is too much, layer after layer is traced alone.
        most = max(self.config.num_encoder_layers, self.config.num_decoder_layers)
        layers: Sequence[int | None] = [None] if fits(self.config, subject) else range(most)
        for layer in layers:
            trace = subject.trace(masked, layer)
            self.logits: Float[Tensor, "T V"] = trace.logits
            found = {name.removesuffix(".weights"): trace[name] for name in trace if name.endswith(".weights")}
            self.weights.update(found)

    def layers_of(self, kind: str, chosen: Sequence[int] | None) -> list[int]:
        count = self.config.num_encoder_layers if KINDS[kind][0] == "encoder" else self.config.num_decoder_layers
        return [layer for layer in range(count) if chosen is None or layer in chosen]

    def stacked(self, kind: str, chosen: Sequence[int] | None = None) -> Float[Tensor, "L H T S"]:
        stack, sort = KINDS[kind]
        found = [self.weights[f"{stack}.{layer}.{sort}"] for layer in self.layers_of(kind, chosen)]
        return torch.stack(found) if found else torch.zeros(0, self.config.num_heads, 0, 0)


def check_layers(config: ModelConfig, chosen: Sequence[int] | None) -> None:
    for layer in chosen or ():
        if layer >= max(config.num_encoder_layers, config.num_decoder_layers):
            stack = "encoder" if config.num_encoder_layers > config.num_decoder_layers else "decoder"
            count = max(config.num_encoder_layers, config.num_decoder_layers)
            raise Refusal("unknown_layer", layer=layer, stack=stack, count=count)


def check_block(config: ModelConfig, subject: Subject, chosen: Sequence[int] | None, most: int) -> None:
    """Before anything is computed."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    encoder, decoder = (
        len([layer for layer in range(count) if chosen is None or layer in chosen])
        for count in (config.num_encoder_layers, config.num_decoder_layers)
    )
    size = 2 * config.num_heads * (encoder * source * source + decoder * target * (target + source))
    if size > most:
        extra = {"choices": ["fewer layers"], "choices_zh": ["减少层数"]}
        raise Refusal("block_too_large", extra, size=size / 2**20, most=most / 2**20)


def block(maps: Maps, chosen: Sequence[int] | None) -> dict[str, Any]:
    """Where each kind begins, counted in numbers, and all of them behind one another as float16."""
    told: dict[str, Any] = {"dtype": "float16", "layers": sorted(set(chosen)) if chosen is not None else None}
    parts, offset = [], 0
    for kind in KINDS:
        stacked = maps.stacked(kind, chosen)
        layers = maps.layers_of(kind, chosen)
        told[kind] = {"shape": list(stacked.shape), "offset": offset, "byte_offset": 2 * offset, "layers": layers}
        parts.append(stacked.flatten())
        offset += stacked.numel()
    if told["layers"] is None:
        told["layers"] = list(range(max(maps.config.num_encoder_layers, maps.config.num_decoder_layers)))
    numbers = torch.cat(parts).to(torch.float16).cpu().numpy().astype("<f2")
    return {"maps": told, "block": base64.b64encode(numbers.tobytes()).decode("ascii")}


def rollout(maps: Maps) -> dict[str, Any]:
    """How much of each prediction comes from each source token, through all layers.

    Attention rollout (Abnar & Zuidema 2020): of what leaves a sub-layer one half is what entered it, by the path around
    it, and one half what its heads brought, on average. The rows are divided by their sums, for the rest of each (2⁻ᴸ
    with L layers) comes from the target itself.
    """
    source = maps.stacked("encoder_self").mean(dim=1)  # [L, S, S]
    size, length = maps.weights["decoder.0.cross"].shape[2], maps.weights["decoder.0.cross"].shape[1]
    memory = torch.eye(size)
    for looked in source:
        memory = 0.5 * memory + 0.5 * looked @ memory
    brought = torch.zeros(length, size)
    of_itself, of_memory = maps.stacked("decoder_self").mean(dim=1), maps.stacked("cross").mean(dim=1)
    for own, looked in zip(of_itself, of_memory, strict=True):
        brought = 0.5 * brought + 0.5 * own @ brought
        brought = 0.5 * brought + 0.5 * looked @ memory
    values = brought / brought.sum(dim=1, keepdim=True)
    return {"shape": [length, size], "values": values.flatten().tolist()}


def fits(config: ModelConfig, subject: Subject) -> bool:
    """Whether a trace of all layers can be kept."""
    source, target = len(subject.source_ids), len(subject.read_ids)
    cells = config.num_encoder_layers * source * source + config.num_decoder_layers * target * (target + source)
    return 4 * config.num_heads * cells <= MOST_NUMBERS


def head_numbers(maps: Float[Tensor, "L H T S"], keys: Sequence[int], causal: bool = False) -> list[list[Numbers]]:
    """Means over the rows of each map; `keys` are the ids of the tokens looked at, `causal`: row i sees those up to i.

    What each number is stands in `heads_numbers.summed`. A number that no row has is None.
    """
    special = torch.tensor([[token in (BOS, EOS) for token in keys]])
    shape = Rows([maps.size(-2)], [maps.size(-1)], special, causal)
    told: list[list[Numbers]] = []
    for layer in maps:
        found = summed(layer[None], shape)
        told.append(
            [
                {name: float(values[head]) / count if count else None for name, (values, count) in found.items()}
                for head in range(maps.size(1))
            ]
        )
    return told
