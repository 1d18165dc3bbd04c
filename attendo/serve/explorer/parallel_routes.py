"""Route /parallel: how a model that predicts all tokens at once reaches its output; its output for /answer."""

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.errors import UsageError
from attendo.explore.parallel_answer import describe_parallel_answer
from attendo.model.parallel import ParallelTransformer
from attendo.serve.explorer.schemas import AnswerRequest, ModelTextRequest, ParallelRequest
from attendo.serve.explorer.search import encode_within_limit
from attendo.serve.explorer.tasks import PAGE_RESPONSES, CooperativeTask, run_on_worker
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import json_response
from attendo.serve.http.openapi import JSON_OBJECT_CONTENT
from attendo.serve.http.sse import Event
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.settings import ServeSettings
from attendo.text_model import ParallelTrace, TextModel
from attendo.text_model.inputs import ModelSymbols, encode_symbols

_MAX_VERTICES = 1024  # of a graph that is shown: its alignment takes time for each token and pair of vertices


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["page"])

    @router.post("/parallel", response_model=None, responses={**PAGE_RESPONSES, 200: {"content": JSON_OBJECT_CONTENT}})
    async def parallel(request: ParallelRequest) -> Response:
        """Return the passes of mask-predict, the graph with the chosen path, or the CTC alignment."""
        served = gateway.get_model(request.model)

        def respond() -> CooperativeTask[Response]:
            yield
            model = served.load_checkpoint(request.checkpoint)
            options = request.model_dump(include={"passes", "graph_search"}, exclude_none=True)
            trace = trace_at_once(model, request, gateway.settings.max_inspected_tokens, request.target, **options)
            return json_response(trace.as_json())

        return await run_on_worker(gateway, served, respond)

    return router


def answer_at_once(model: TextModel, request: AnswerRequest, settings: ServeSettings) -> Iterator[Event]:
    """Yield the output of a model that predicts all tokens at once, as the events of /answer."""
    if request.prefix:
        raise UsageError("parallel_feature_unsupported", feature="a forced prefix", kind=model.kind)
    if request.heads or request.edits:
        model.require_autoregressive("scaling heads")
    if request.decoder.kind != "greedy":
        model.require_autoregressive("a beam or samples on the page")
    trace = trace_at_once(model, request, settings.max_source_tokens, None)
    yield "text", trace.text
    yield "done", describe_parallel_answer(trace)


def trace_at_once(
    model: TextModel, request: ModelTextRequest, max_tokens: int, target: str | None, **options: Any
) -> ParallelTrace:
    """Trace the output, or a given target, within the limits of the page."""
    symbols = encode_symbols(model.generation, model.source_tokenizer, model.target_tokenizer)
    if (positions := model.backend.max_sequence_length) is not None:
        max_tokens = min(max_tokens, positions + 1)
    if isinstance(model.network, ParallelTransformer) and model.kind == "graph":
        max_tokens = min(max_tokens, _MAX_VERTICES // model.network.upsample)
    encode_within_limit(request.text, model.source_tokenizer, symbols, max_tokens)
    if target is not None:
        encode_within_limit(target, model.target_tokenizer, ModelSymbols(symbols.begin), max_tokens, "target")
    max_length = request.decoder.to_generate_options().get("max_length")
    return model.trace_parallel(request.text, target, max_length=max_length, **options)
