"""Routes /v1/models, /v1/chat/completions and /v1/completions."""

import time
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from attendo.serve.apis.openai.completion import CompletionRunner, make_completion_options
from attendo.serve.apis.openai.prompts import Prompt, build_source, make_prompt
from attendo.serve.apis.openai.requests import ChatRequest, CommonParams, CompletionRequest
from attendo.serve.apis.openai.responses import (
    ChatResponse,
    CompletionResponse,
    OpenAIModelInfo,
    OpenAIModelList,
    ResponseEnvelope,
    count_usage,
    stream_completion,
)
from attendo.serve.http.auth import key_dependency
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import MODEL_ERRORS, error_responses, json_or_events
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel

_ERRORS = error_responses(
    "openai",
    *MODEL_ERRORS,
    *("too_many_texts", "too_many_sentences", "unmet_parameter", "unknown_parameter", "one_stream", "no_user_turn"),
)

_PLACEHOLDER_MODEL = "dummy"  # model name sent by Hugging Face's client if none is given


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(
        prefix="/v1", route_class=StrictRoute, dependencies=[key_dependency(gateway.settings.keys)], tags=["OpenAI"]
    )
    created = int(time.time())

    @router.get("/models")
    async def models() -> OpenAIModelList:
        return OpenAIModelList(data=[OpenAIModelInfo(id=each.name, created=created) for each in gateway.registry.all()])

    @router.get("/models/{name}", responses=error_responses("openai", "unknown_model"))
    async def model(name: str) -> OpenAIModelInfo:
        return OpenAIModelInfo(id=_select_model(gateway, name).name, created=created)

    @router.post("/chat/completions", response_model=None, responses={**json_or_events(ChatResponse), **_ERRORS})
    async def chat(params: ChatRequest, request: Request) -> Response:
        return await complete_chat(gateway, params, request)

    @router.post("/completions", response_model=None, responses={**json_or_events(CompletionResponse), **_ERRORS})
    async def completions(params: CompletionRequest, request: Request) -> Response:
        params.check_supported()
        return await _respond(gateway, _select_model(gateway, params.model), params.prompts, params, request)

    return router


async def complete_chat(gateway: ModelGateway, params: ChatRequest, request: Request) -> Response:
    """Return the response to a chat request, also under the base URLs of Hugging Face's API."""
    params.check_supported()
    served = _select_model(gateway, params.model)
    texts = [build_source(params.messages, served, gateway.settings)]
    return await _respond(gateway, served, texts, params, request)


async def _respond(
    gateway: ModelGateway, served: ServedModel, texts: Sequence[str], params: CommonParams, request: Request
) -> Response:
    gateway.check_texts(texts)
    runner = CompletionRunner(gateway, served, make_completion_options(params, served.model, gateway.settings))
    prompts: list[Prompt] = [make_prompt(text, served) for text in texts]
    runner.check(prompts)
    envelope = ResponseEnvelope(isinstance(params, ChatRequest), served.name)
    if params.stream:
        return await stream_completion(runner, prompts, envelope, params.with_usage, request.url.path)
    choices = await runner.complete(prompts)
    usage = count_usage(runner.count_prompt_tokens(prompts), choices)
    return json_response(envelope.build_response(choices, usage))


def _select_model(gateway: ModelGateway, name: str | None) -> ServedModel:
    named = name in [each.name for each in gateway.registry.all()]
    try:
        return gateway.get_model(None if name == _PLACEHOLDER_MODEL and not named else name)
    except ApiError as error:
        error.extra["param"] = "model"
        raise
