"""attendo's own API under /api/v1: /generate, /score and the routes of the explorer page."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.serve.apis.continuations import strip_prompt_from_result, strip_prompt_stream
from attendo.serve.apis.native_schemas import (
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    SourceTargetPair,
    score_to_dict,
)
from attendo.serve.explorer.ablation import routes as ablation_routes
from attendo.serve.explorer.catalogue_routes import routes as catalogue_routes
from attendo.serve.explorer.decoding_routes import routes as decoding_routes
from attendo.serve.explorer.inspection_routes import routes as inspection_routes
from attendo.serve.explorer.schemas import PAGE_REQUESTS as OF_PAGE
from attendo.serve.explorer.schemas import ExplorerDecodingOptions
from attendo.serve.http.auth import key_dependency
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import MODEL_ERRORS, error_responses, json_or_events
from attendo.serve.http.sse import Events, await_first_event, event_stream
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result, ScoredTarget, TextModel
from attendo.text_model.results import result_to_dict

API_PREFIX = "/api/v1"
PAIRS_PER_BLOCK = 8  # pairs scored between two decoding steps of other requests


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(prefix=API_PREFIX, dependencies=[key_dependency(gateway.settings.keys)])
    for routes_of_part in (
        generate_routes,
        score_routes,
        catalogue_routes,
        decoding_routes,
        inspection_routes,
        ablation_routes,
    ):
        router.include_router(routes_of_part(gateway))
    return router


def request_field_names() -> list[str]:
    """Return the field names of all native requests, for suggestions after a typo."""
    schemas = (GenerateRequest, ScoreRequest, SourceTargetPair, ExplorerDecodingOptions, *OF_PAGE)
    return sorted({name for each in schemas for name in each.model_fields})


def generate_routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/generate",
        response_model=None,
        responses={
            **error_responses("ours", *MODEL_ERRORS, "too_many_texts", "alignments_too_large"),
            **json_or_events(GenerateResponse),
        },
    )
    async def generate(request: GenerateRequest) -> Response:
        """Generate outputs for texts, in the same order. Omitted options default to the model's settings."""
        if request.stream:
            # Invalid requests are rejected before the stream starts.
            return event_stream(await await_first_event(_stream_events(gateway, request)))
        served = gateway.get_model(request.model)
        results = await gateway.generate(served, request.texts, **request.to_generate_options())
        if request.alignments:  # up to 2 million numbers: serialised in a thread to keep the event loop free
            return await asyncio.to_thread(lambda: json_response(_generate_body(served, results, request)))
        return json_response(_generate_body(served, results, request))

    return router


async def _stream_events(gateway: ModelGateway, request: GenerateRequest) -> Events:
    """Yield `text` events with the new text, then `done` with the body of a response without streaming."""
    if len(request.texts) != 1:
        raise ApiError("one_text_a_stream", count=len(request.texts))
    served, results = gateway.get_model(request.model), list[Result]()
    async with aclosing(
        gateway.stream(served, request.texts[0], on_result=results.append, **request.to_generate_options())
    ) as streamed:
        parts = streamed if request.echo else strip_prompt_stream(served.model, request.texts[0], streamed)
        async with aclosing(parts):
            async for new in parts:
                yield "text", {"text": new}
    yield "done", _generate_body(served, results, request)


def _generate_body(served: ServedModel, results: list[Result], request: GenerateRequest) -> dict[str, Any]:
    several = request.n_best is not None
    returned_results = results if request.echo else [strip_prompt_from_result(served.model, each) for each in results]
    return {"model": served.name, "results": [result_to_dict(each, several) for each in returned_results]}


def score_routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/score",
        response_model=None,
        responses={
            **error_responses("ours", *MODEL_ERRORS, "too_many_texts", "pair_too_long"),
            200: {"model": ScoreResponse},
        },
    )
    async def score(request: ScoreRequest) -> Response:
        """Return the log-probability of each target given its source, in the order of the pairs."""
        return json_response(await _score_pairs(gateway, request))

    return router


async def _score_pairs(gateway: ModelGateway, request: ScoreRequest) -> dict[str, Any]:
    served = gateway.get_model(request.model)
    for side in ("source", "target"):
        gateway.check_texts([getattr(pair, side) for pair in request.pairs])
    blocks = served.worker.iterate(
        lambda: _score_blocks(served.model, request.pairs, gateway.settings), gateway.deadline()
    )
    scores: list[ScoredTarget] = []
    async for tokens, scored in blocks:
        gateway.metrics.count_tokens(served.name, tokens, 0)  # all are input tokens
        scores += scored
    return {"model": served.name, "scores": [score_to_dict(each, request.normalise, request.tokens) for each in scores]}


def _score_blocks(
    model: TextModel, pairs: Sequence[SourceTargetPair], settings: ServeSettings
) -> Iterator[tuple[int, list[ScoredTarget]]]:
    """Yield the token count and the scores of each block of pairs. Runs in a thread of the model's worker."""
    rest = iter(pairs)
    while block := list(islice(rest, PAIRS_PER_BLOCK)):
        sources, targets = [pair.source for pair in block], [pair.target for pair in block]
        tokens = _count_tokens(model, sources, "source", settings.max_source_tokens)
        tokens += _count_tokens(model, targets, "target", settings.max_output_tokens)
        yield tokens, model.score_tokens(sources, targets)


def _count_tokens(model: TextModel, texts: Sequence[str], side: str, max_tokens: int) -> int:
    """Count tokens, prefix included. Raise `ApiError` if a text with EOS exceeds the limit or the learned positions."""
    tokenizer = model.source_tokenizer if side == "source" else model.target_tokenizer
    before = len(model.generation.source_prefix if side == "source" else model.generation.target_prefix)
    longest = model.backend.max_sequence_length
    max_tokens = max_tokens if longest is None else min(max_tokens, longest + 1)
    counts = [before + len(ids) for ids in tokenizer.encode_many(list(texts))]
    if (tokens := max(counts) + 1) > max_tokens:
        raise ApiError("pair_too_long", {"side": side}, side=side, tokens=tokens, most=max_tokens)
    return sum(counts)
