"""/ablate and /rank: what becomes of an answer without some heads."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.model.heads import sites
from attendo.serve.events import Event, event_stream
from attendo.serve.explorer.desk import Desk, checked_heads, model_for
from attendo.serve.explorer.requests import AblateRequest, RankRequest
from attendo.serve.explorer.searching import Search
from attendo.serve.explorer.subject import Subject
from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import Served
from attendo.serve.strict_json import StrictRoute


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(route_class=StrictRoute)

    @router.post("/ablate", response_model=None)
    async def ablate(asked: AblateRequest) -> Response:
        whole = asked.model_copy(update={"heads": {}})  # the answer is that of the model as it is
        return await desk.answer(whole, lambda model: _ablated(model, asked, desk.settings))

    @router.post("/rank", response_model=None)
    async def rank(asked: RankRequest) -> Response:
        return await _ranked(desk, asked)

    return router


def _ablated(model: Any, asked: AblateRequest, settings: ServeSettings) -> dict[str, Any]:
    heads = checked_heads(model.network.config, asked.heads)
    subject = Subject.of(model, asked, settings)
    changed = model.with_heads(heads) if heads else model
    before, after = subject.log_probabilities(), subject.log_probabilities(changed)
    search = Search(changed, asked.text, asked.decoder, settings.tokens, settings.tokens - 1)
    best = search.answers()[0]
    pieces = model.target_tokenizer.pieces(subject.predicted_ids)
    return {
        "before": {"text": subject.text, "log_probability": sum(before), "tokens": _tokens(pieces, before)},
        "after": {
            "text": best.text,
            "log_probability": best.log_probability,
            "cut": best.cut,
            "log_probability_of_old": sum(after),
            "tokens": _tokens(pieces, after),
        },
        "delta": sum(after) - sum(before),
    }


def _tokens(pieces: list[str], values: list[float]) -> list[dict[str, Any]]:
    return [{"piece": piece, "log_probability": value} for piece, value in zip(pieces, values, strict=True)]


async def _ranked(desk: Desk, asked: RankRequest) -> Response:
    """Each head is a piece of work of its own, so that other requests come in between, and none is done for nobody."""
    served = desk.shelf.named(asked.model)
    subject = await served.worker.run(lambda: Subject.of(model_for(served, asked), asked, desk.settings))

    async def events() -> AsyncIterator[Event]:
        base = sum(await served.worker.run(subject.log_probabilities))
        config = subject.model.network.config
        for site in sites(config):
            for head in range(config.num_heads):
                yield "head", {"site": site, "head": head, "delta": await _without(served, subject, site, head) - base}
        yield "done", {"log_probability": base, "text": subject.text, "heads": len(sites(config)) * config.num_heads}

    return event_stream(events())


async def _without(served: Served, subject: Subject, site: str, head: int) -> float:
    """The log-probability of the answer with one more head switched off."""
    return await served.worker.run(
        lambda: sum(subject.log_probabilities(subject.model.with_heads({site: {head: 0.0}})))
    )
