"""attendo's own API under /api/v1: /generate, /score and the routes of the explorer page."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from attendo.decode.config import GenerationConfig
from attendo.decode.options import list_options
from attendo.serve.apis.continuations import strip_prompt_from_result, strip_prompt_stream
from attendo.serve.explorer.ablation import routes as ablation_routes
from attendo.serve.explorer.catalogue_routes import routes as catalogue_routes
from attendo.serve.explorer.decoding_routes import routes as decoding_routes
from attendo.serve.explorer.fault_routes import routes as fault_routes
from attendo.serve.explorer.forward_routes import routes as forward_routes
from attendo.serve.explorer.inspection_routes import routes as inspection_routes
from attendo.serve.explorer.parallel_routes import routes as parallel_routes
from attendo.serve.explorer.representation_routes import routes as representation_routes
from attendo.serve.explorer.schemas import PAGE_REQUESTS, ExplorerDecodingOptions
from attendo.serve.http.auth import key_dependency
from attendo.serve.http.bodies import (
    DecodingRequest,
    ModelName,
    RequestModel,
    ResponseModel,
    StrictRoute,
    with_decoding_options,
)
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import MODEL_ERRORS, error_responses, json_or_events
from attendo.serve.http.sse import Events, await_first, event_stream
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model import GenerateOptions, Result, ScoredTarget, TextModel
from attendo.text_model.results import result_to_dict

API_PREFIX = "/api/v1"
PAIRS_PER_BLOCK = 8  # pairs scored between two decoding steps of other requests


Phrase = Annotated[str, Field(max_length=200)]
Phrases = Annotated[list[Phrase], Field(max_length=50)]
Number = float | None  # null if not finite
_SERVER_OPTIONS = ("engine", "compile", "precision", "batch_tokens", "max_source")  # configured on the server
_JSON_TYPES = {
    "prefix": str | list[str],
    "constraints": Phrases | Annotated[list[Phrases], Field(max_length=50)],
    "banned_phrases": Phrases,
    "do_not_translate": Phrases,
    "keep": Annotated[list[Literal["placeholders", "urls", "emails", "numbers"]], Field(max_length=4)],
}

if TYPE_CHECKING:

    class _DeclaredOptions(DecodingRequest):
        alignments: bool | None
        n_best: int | None

else:
    _DeclaredOptions = with_decoding_options(
        [
            *(each.name for each in list_options(GenerateOptions)),
            *(name for name in GenerationConfig.model_fields if name not in _SERVER_OPTIONS),
        ],
        _JSON_TYPES,
    )


class DecodingOptions(_DeclaredOptions):
    """All decoding options, by their command line names. Null uses the model's setting.

    Engine, precision and similar options are configured on the server. Values that cost memory or time are checked
    against the server's limits.
    """

    def to_generate_options(self) -> dict[str, Any]:
        """Return the given options by the names of `TextModel.generate`."""
        return {name: value for name in DecodingOptions.model_fields if (value := getattr(self, name)) is not None}


class GenerateRequest(DecodingOptions):
    """Texts to generate outputs for. `stream` requires a single text."""

    model: ModelName | None = Field(None, description="name of the model; by default the first")
    texts: Annotated[list[str], Field(min_length=1)]
    echo: bool = Field(False, description="decoder-only models: return the prompt before the new text")
    stream: bool = Field(False, description="one text only: send server-sent events `text`, then `done`")


class SourceTargetPair(RequestModel):
    source: str
    target: str


class ScoreRequest(RequestModel):
    """Pairs of source and target to score."""

    model: ModelName | None = Field(None, description="name of the model; by default the first")
    pairs: Annotated[list[SourceTargetPair], Field(min_length=1)]
    normalise: bool = Field(False, description="divide by the number of tokens, EOS included")
    tokens: bool = Field(False, description="also return the log-probability of every token, EOS included")


class ScoreParts(ResponseModel):
    """score = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: Number
    penalty: Number
    tokens: int
    divisor: Number
    reward: Number
    coverage: Number


class HypothesisResponse(ResponseModel):
    """A hypothesis. `cut` is true if the length limit was reached before the end.

    `alignments` are pairs of source and output tokens. `word_alignments` are pairs of whitespace-separated words.
    """

    text: str
    score: Number
    parts: ScoreParts
    pieces: list[str]
    ids: list[int]
    cut: bool
    constraints: list[bool] | None = None
    utility: Number = None
    alignments: list[tuple[int, int]] | None = None
    word_alignments: list[tuple[int, int]] | None = None
    source_pieces: list[str] | None = None
    attention: list[list[float]] | None = None


class TermResponse(ResponseModel):
    """Whether the output has a text to keep. The spans count characters, and the second number is the end."""

    kind: str
    source: str
    source_span: tuple[int, int]
    target: str
    target_span: tuple[int, int] | None
    reason: str
    met: bool


class FaultResponse(ResponseModel):
    """A fault of the best hypothesis. `value` is beyond `limit`. `where` is a span of characters of its text."""

    kind: str
    value: Number
    limit: Number
    where: tuple[int, int]
    evidence: str


class RepairResponse(ResponseModel):
    """An attempt to replace an output with faults, and whether the new output was kept."""

    by: str
    faults_before: list[str]
    faults_after: list[str]
    kept: bool


class SegmentResponse(ResponseModel):
    """A sentence of the source and its output: the first character of each, and the one after the last."""

    source_span: tuple[int, int]
    target_span: tuple[int, int]


class ResultResponse(HypothesisResponse):
    """The best hypothesis, all requested hypotheses, and the sentences that the text was split into.

    `source_left_out` is the number of tokens truncated at the end of a source that is too long.
    """

    unknown: list[str] | None = None
    source_left_out: int | None = None
    hypotheses: list[HypothesisResponse] | None = None
    sentences: list[HypothesisResponse] | None = None
    segments: list[SegmentResponse] | None = None
    terms: list[TermResponse] | None = None
    unsplit: int | None = None
    faults: list[FaultResponse] | None = None
    confidence: Number = None
    repairs: list[RepairResponse] | None = None


class GenerateResponse(ResponseModel):
    """Results in the order of the texts."""

    model: str
    results: list[ResultResponse]


class PairScore(ResponseModel):
    """Log-probability of the target, EOS included. With `normalise`, its mean over the tokens."""

    log_probability: Number
    tokens: int
    pieces: list[str] | None = None
    log_probabilities: list[Number] | None = None


class ScoreResponse(ResponseModel):
    """Scores in the order of the pairs."""

    model: str
    scores: list[PairScore]


def score_to_dict(scored: ScoredTarget, normalise: bool, tokens: bool) -> dict[str, Any]:
    count = len(scored.pieces)
    content: dict[str, Any] = {
        "log_probability": scored.log_probability / (count if normalise else 1),
        "tokens": count,
    }
    if tokens:
        content |= {"pieces": scored.pieces, "log_probabilities": scored.log_probabilities}
    return content


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(prefix=API_PREFIX, dependencies=[key_dependency(gateway.settings.keys)])
    for part in (
        _program_routes,
        catalogue_routes,
        decoding_routes,
        forward_routes,
        inspection_routes,
        ablation_routes,
        representation_routes,
        parallel_routes,
        fault_routes,
    ):
        router.include_router(part(gateway))
    return router


def request_field_names() -> list[str]:
    """Return the field names of all native requests, for suggestions after a typo."""
    schemas = (GenerateRequest, ScoreRequest, SourceTargetPair, ExplorerDecodingOptions, *PAGE_REQUESTS)
    return sorted({name for each in schemas for name in each.model_fields})


def _program_routes(gateway: ModelGateway) -> APIRouter:
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
            return event_stream(await await_first(_stream_events(gateway, request)))
        served = gateway.get_model(request.model)
        results = await gateway.generate(served, request.texts, **request.to_generate_options())
        if request.alignments:  # up to 2 million numbers: serialised in a thread to keep the event loop free
            return await asyncio.to_thread(lambda: json_response(_generate_body(served, results, request)))
        return json_response(_generate_body(served, results, request))

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
    """Count tokens and symbols. Raise `ApiError` if a text with EOS exceeds the limit or the learned positions."""
    tokenizer = model.source_tokenizer if side == "source" else model.target_tokenizer
    config = model.generation
    added = len(config.source_prefix) + len(config.source_suffix) if side == "source" else len(config.target_prefix)
    longest = model.backend.max_sequence_length
    max_tokens = max_tokens if longest is None else min(max_tokens, longest + 1)
    counts = [added + len(ids) for ids in tokenizer.encode_many(list(texts))]
    if (tokens := max(counts) + 1) > max_tokens:
        raise ApiError("pair_too_long", {"side": side}, side=side, tokens=tokens, most=max_tokens)
    return sum(counts)
