"""/trace, /mask and /ledger: one run seen from inside."""

from typing import Any

import torch
from fastapi import APIRouter
from starlette.responses import Response

from attendo.serve.errors import Refusal
from attendo.serve.explorer.desk import OF_PAGE, answered
from attendo.serve.explorer.head_numbers import head_numbers
from attendo.serve.explorer.inside_replies import LedgerReply, MaskReply, TraceReply
from attendo.serve.explorer.ledger import LedgerBook
from attendo.serve.explorer.maps import KINDS, Maps, block, check_block, check_layers, fits, rollout
from attendo.serve.explorer.pieces import words
from attendo.serve.explorer.predictions import predictions
from attendo.serve.explorer.requests import LedgerRequest, MaskRequest, TraceRequest
from attendo.serve.explorer.searching import Turns
from attendo.serve.explorer.subject import Subject
from attendo.serve.office import Office
from attendo.serve.openapi import refusals
from attendo.serve.settings import ServeSettings
from attendo.serve.strict_json import StrictRoute
from attendo.text_model import TextModel


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
