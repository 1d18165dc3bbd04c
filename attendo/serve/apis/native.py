"""attendo's own API under /api/v1: /generate, /score and the routes of the explorer page."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from attendo.serve.apis.continuations import added_bits, without_text
from attendo.serve.apis.native_schemas import (
    GenerateReply,
    GenerateRequest,
    ScoredPair,
    ScoreReply,
    ScoreRequest,
    score_told,
)
from attendo.serve.explorer.ablation import routes as ablation_routes
from attendo.serve.explorer.catalogue_routes import routes as catalogue_routes
from attendo.serve.explorer.decoding_routes import routes as decoding_routes
from attendo.serve.explorer.inspection_routes import routes as inspection_routes
from attendo.serve.explorer.schemas import REQUESTS as OF_PAGE
from attendo.serve.explorer.schemas import Decoder
from attendo.serve.http.auth import admitted, bearer
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import OF_MODELS, events_or, refusals
from attendo.serve.http.sse import Events, begun, event_stream
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result, ScoredTarget, TextModel
from attendo.text_model.results import plain_result

API = "/api/v1"
AT_ONCE = 8  # pairs between two steps of others


def routes(office: Office) -> APIRouter:
    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(prefix=API, dependencies=[Depends(with_key)])
    for routes_of_part in (
        generate_routes,
        score_routes,
        catalogue_routes,
        decoding_routes,
        inspection_routes,
        ablation_routes,
    ):
        router.include_router(routes_of_part(office))
    return router


def known_names() -> list[str]:
    """Of all fields of our requests: a mistyped one is told the nearest."""
    asked = (GenerateRequest, ScoreRequest, ScoredPair, Decoder, *OF_PAGE)
    return sorted({name for each in asked for name in each.model_fields})


def generate_routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/generate",
        response_model=None,
        responses={
            **refusals("ours", *OF_MODELS, "too_many_texts", "alignments_too_large"),
            **events_or(GenerateReply),
        },
    )
    async def generate(asked: GenerateRequest) -> Response:
        """Answers to texts, in their order. Settings are the model's own unless given."""
        if asked.stream:
            # What cannot be meant is refused before the stream begins.
            return event_stream(await begun(_events(office, asked)))
        served = office.served(asked.model)
        results = await office.answer(served, asked.texts, **asked.given())
        if asked.alignments:  # up to two million numbers: while they are written down, others are answered
            return await asyncio.to_thread(lambda: answer(_whole(served, results, asked)))
        return answer(_whole(served, results, asked))

    return router


async def _events(office: Office, asked: GenerateRequest) -> Events:
    """What is new of the text each time, then all that an answer without a stream would have told."""
    if len(asked.texts) != 1:
        raise Refusal("one_text_a_stream", count=len(asked.texts))
    served, found = office.served(asked.model), list[Result]()
    async with aclosing(office.stream(served, asked.texts[0], done=found.append, **asked.given())) as streamed:
        parts = streamed if asked.echo else added_bits(served.model, asked.texts[0], streamed)
        async with aclosing(parts):
            async for new in parts:
                yield "text", {"text": new}
    yield "done", _whole(served, found, asked)


def _whole(served: Served, results: list[Result], asked: GenerateRequest) -> dict[str, Any]:
    several = asked.n_best is not None
    told = results if asked.echo else [without_text(served.model, each) for each in results]
    return {"model": served.name, "results": [plain_result(each, several) for each in told]}


def score_routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/score",
        response_model=None,
        responses={**refusals("ours", *OF_MODELS, "too_many_texts", "pair_too_long"), 200: {"model": ScoreReply}},
    )
    async def score(asked: ScoreRequest) -> Response:
        """The log-probability of each target given its source, in the order of the pairs."""
        return answer(await _scores(office, asked))

    return router


async def _scores(office: Office, asked: ScoreRequest) -> dict[str, Any]:
    served = office.served(asked.model)
    for side in ("source", "target"):
        office.check([getattr(pair, side) for pair in asked.pairs])
    blocks = served.batcher.each(lambda: _blocks(served.model, asked.pairs, office.settings), office.deadline())
    found: list[ScoredTarget] = []
    async for tokens, scored in blocks:
        office.tally.tokens(served.name, tokens, 0)  # all of them are read
        found += scored
    return {"model": served.name, "scores": [score_told(each, asked.normalise, asked.tokens) for each in found]}


def _blocks(
    model: TextModel, pairs: Sequence[ScoredPair], settings: ServeSettings
) -> Iterator[tuple[int, list[ScoredTarget]]]:
    """In the thread of the model, a few pairs at a time, with how many tokens they have."""
    rest = iter(pairs)
    while block := list(islice(rest, AT_ONCE)):
        sources, targets = [pair.source for pair in block], [pair.target for pair in block]
        tokens = _tokens(model, sources, "source", settings.source_tokens)
        tokens += _tokens(model, targets, "target", settings.answer_tokens)
        yield tokens, model.score_tokens(sources, targets)


def _tokens(model: TextModel, texts: Sequence[str], side: str, most: int) -> int:
    """How many, with what the model puts before them. With eos none may be too long, also for learned positions."""
    tokenizer = model.source_tokenizer if side == "source" else model.target_tokenizer
    before = len(model.generation.source_prefix if side == "source" else model.generation.target_prefix)
    longest = model.runtime.longest
    most = most if longest is None else min(most, longest + 1)
    counts = [before + len(ids) for ids in tokenizer.encode_many(list(texts))]
    if (tokens := max(counts) + 1) > most:
        raise Refusal("pair_too_long", {"side": side}, side=side, tokens=tokens, most=most)
    return sum(counts)
