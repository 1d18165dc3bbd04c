"""/ablate and /rank: what becomes of an answer without some heads."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.model.head_scaling import sites
from attendo.serve.explorer.model_access import OF_PAGE, Search, Turns, answered, checked_heads, computed, model_for
from attendo.serve.explorer.schemas import AblateReply, AblateRequest, RankRequest
from attendo.serve.explorer.subject import Subject
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.openapi import EVENTS, refusals
from attendo.serve.http.sse import Events, EventStream, begun, event_stream
from attendo.serve.scheduling.gateway import Office
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel


def routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])
    refused = refusals("ours", *OF_PAGE)

    @router.post("/ablate", response_model=None, responses={**refused, 200: {"model": AblateReply}})
    async def ablate(asked: AblateRequest) -> Response:
        """The answer without some heads, and what the old answer is then worth."""
        whole = asked.model_copy(update={"heads": {}})  # the answer is that of the model as it is
        return await answered(office, whole, lambda model: _ablated(model, asked, office.settings))

    @router.post(
        "/rank", response_model=None, response_class=EventStream, responses={**refused, 200: {"content": EVENTS}}
    )
    async def rank(asked: RankRequest) -> Response:
        """What the answer loses without each head: server-sent events `head`, then `done`."""
        return event_stream(await begun(_ranked(office, asked)))

    return router


def _ablated(model: TextModel, asked: AblateRequest, settings: ServeSettings) -> Turns[dict[str, Any]]:
    heads = checked_heads(model.network.config, asked.heads)
    subject = yield from Subject.of(model, asked, settings)
    changed = model.with_heads(heads) if heads else model
    before, after = subject.log_probabilities(), subject.log_probabilities(changed)
    search = Search(changed, asked.text, asked.decoder, settings.tokens, settings.tokens - 1)
    best = (yield from search.answers())[0]
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


async def _ranked(office: Office, asked: RankRequest) -> Events:
    """Each head has the time of a request, as many as there are: whoever hears something new can wait."""
    served = office.served(asked.model)
    subject, base = await computed(office, served, lambda: _whole(model_for(served, asked), asked, office.settings))
    config = subject.model.network.config
    for site in sites(config):
        for head in range(config.num_heads):
            without = await served.batcher.run(partial(_without, subject, site, head), office.deadline())
            yield "head", {"site": site, "head": head, "delta": without - base}
    yield "done", {"log_probability": base, "text": subject.text, "heads": len(sites(config)) * config.num_heads}


def _whole(model: TextModel, asked: RankRequest, settings: ServeSettings) -> Turns[tuple[Subject, float]]:
    """What it is about, and what it is worth with all heads."""
    subject = yield from Subject.of(model, asked, settings)
    return subject, sum(subject.log_probabilities())


def _without(subject: Subject, site: str, head: int) -> float:
    return sum(subject.log_probabilities(subject.model.with_heads({site: {head: 0.0}})))
