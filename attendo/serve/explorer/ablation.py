"""Routes /ablate and /rank: the effect of edits, and of removing each attention head."""

from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.model.head_scaling import sites
from attendo.serve.explorer.schemas import TargetRequest
from attendo.serve.explorer.search import ExplorerSearch, InspectedPair, trace_fits
from attendo.serve.explorer.tasks import (
    PAGE_RESPONSES,
    CooperativeTask,
    edit_model,
    find_edits,
    parse_edits,
    parse_heads,
    prepare_model,
    run_and_respond,
    run_on_worker,
)
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.openapi import EVENT_STREAM_CONTENT
from attendo.serve.http.sse import Events, EventStream, await_first, event_stream
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/ablate", response_model=None, responses=PAGE_RESPONSES)
    async def ablate(request: TargetRequest) -> Response:
        """Return the output with scaled heads and edits, and the log-probability of the original output with them."""
        # The original output is that of the unchanged model.
        original = request.model_copy(update={"heads": {}, "edits": []})
        return await run_and_respond(
            gateway, original, lambda model, _, settings: _compute_ablation(model, request, settings)
        )

    @router.post(
        "/rank",
        response_model=None,
        response_class=EventStream,
        responses={**PAGE_RESPONSES, 200: {"content": EVENT_STREAM_CONTENT}},
    )
    async def rank(request: TargetRequest) -> Response:
        """Stream the change in log-probability without each head: server-sent events `head`, then `done`."""
        return event_stream(await await_first(_rank_heads(gateway, request)))

    return router


def _compute_ablation(
    model: TextModel, request: TargetRequest, settings: ServeSettings
) -> CooperativeTask[dict[str, Any]]:
    heads, edits = parse_heads(model.network.config, request.heads), parse_edits(model, request)
    subject = yield from InspectedPair.build(model, request, settings)
    changed = edit_model(model, heads, edits)
    before, after = subject.log_probabilities(), subject.log_probabilities(changed)
    best = (yield from ExplorerSearch(changed, request, settings.max_inspected_tokens).generate())[0]
    pieces = model.target_tokenizer.pieces(subject.predicted_ids)
    return {
        "before": {"text": subject.text, "log_probability": sum(before), "tokens": _token_rows(pieces, before)},
        "after": {
            "text": best.text,
            "log_probability": best.log_probability,
            "cut": best.cut,
            "log_probability_of_old": sum(after),
            "tokens": [
                {**row, "best": best}
                for row, best in zip(_token_rows(pieces, after), _best_tokens(changed, subject), strict=True)
            ],
        },
        "delta": sum(after) - sum(before),
    }


def _token_rows(pieces: list[str], values: list[float]) -> list[dict[str, Any]]:
    return [{"piece": piece, "log_probability": value} for piece, value in zip(pieces, values, strict=True)]


def _best_tokens(model: TextModel, subject: InspectedPair) -> list[dict[str, Any] | None]:
    """Return the most probable token of the changed model at each position, or None if the trace is too large."""
    changed = replace(subject, model=model)
    if not trace_fits(model.network.config, changed):
        return [None] * len(subject.predicted_ids)
    probabilities, tokens = changed.trace().probabilities.max(dim=-1)
    pieces = model.target_tokenizer.pieces(tokens.tolist())
    return [{"piece": piece, "probability": each} for piece, each in zip(pieces, probabilities.tolist(), strict=True)]


async def _rank_heads(gateway: ModelGateway, request: TargetRequest) -> Events:
    """Yield an event per head. Each head has its own deadline, because the client receives events meanwhile."""
    served = gateway.get_model(request.model)
    subject, base = await run_on_worker(
        gateway, served, lambda: _score_all_heads(prepare_model(served, request), request, gateway.settings)
    )
    config = subject.model.network.config
    for site in sites(config):
        for head in range(config.num_heads):
            without = await served.worker.run(partial(_score_without_head, subject, site, head), gateway.deadline())
            yield "head", {"site": site, "head": head, "delta": without - base}
    yield "done", {"log_probability": base, "text": subject.text, "heads": len(sites(config)) * config.num_heads}


def _score_all_heads(
    model: TextModel, request: TargetRequest, settings: ServeSettings
) -> CooperativeTask[tuple[InspectedPair, float]]:
    """Return the inspected pair and its log-probability with all heads."""
    subject = yield from InspectedPair.build(model, request, settings)
    return subject, sum(subject.log_probabilities())


def _score_without_head(subject: InspectedPair, site: str, head: int) -> float:
    return sum(subject.log_probabilities(edit_model(subject.model, {site: {head: 0.0}}, find_edits(subject.model))))
