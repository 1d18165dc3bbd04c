"""/v1/models, /v1/chat/completions and /v1/completions."""

import time
from collections.abc import Sequence

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from attendo.serve.apis.openai.completion import Answering, decoding_of
from attendo.serve.apis.openai.prompts import Prompt, prompt_of, source_of
from attendo.serve.apis.openai.requests import ChatRequest, CompletionRequest, Wanted
from attendo.serve.apis.openai.responses import (
    ChatReply,
    CompletionReply,
    Letterhead,
    ModelReply,
    ModelsReply,
    streamed,
    usage_of,
)
from attendo.serve.http.auth import admitted, bearer
from attendo.serve.http.bodies import StrictRoute
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import OF_MODELS, events_or, refusals
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served

_REFUSALS = refusals(
    "openai",
    *OF_MODELS,
    *("too_many_texts", "too_many_sentences", "unmet_parameter", "unknown_parameter", "one_stream", "no_user_turn"),
)

_UNNAMED = "dummy"  # the model that Hugging Face's client asks for where none is named


def routes(office: Office) -> APIRouter:
    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(prefix="/v1", route_class=StrictRoute, dependencies=[Depends(with_key)], tags=["OpenAI"])
    begun = int(time.time())

    @router.get("/models")
    async def models() -> ModelsReply:
        return ModelsReply(data=[ModelReply(id=each.name, created=begun) for each in office.shelf.all()])

    @router.get("/models/{name}", responses=refusals("openai", "unknown_model"))
    async def model(name: str) -> ModelReply:
        return ModelReply(id=_served(office, name).name, created=begun)

    @router.post("/chat/completions", response_model=None, responses={**events_or(ChatReply), **_REFUSALS})
    async def chat(asked: ChatRequest, request: Request) -> Response:
        asked.check_met()
        served = _served(office, asked.model)
        texts = [source_of(asked.messages, served, office.settings)]
        return await _answered(office, served, texts, asked, request)

    @router.post("/completions", response_model=None, responses={**events_or(CompletionReply), **_REFUSALS})
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        asked.check_met()
        return await _answered(office, _served(office, asked.model), asked.prompts, asked, request)

    return router


async def _answered(office: Office, served: Served, texts: Sequence[str], asked: Wanted, request: Request) -> Response:
    office.check(texts)
    answering = Answering(office, served, decoding_of(asked, served.model, office.settings))
    prompts: list[Prompt] = [prompt_of(text, served) for text in texts]
    answering.check(prompts)
    letterhead = Letterhead("chatcmpl" if isinstance(asked, ChatRequest) else "cmpl", served.name)
    if asked.stream:
        return await streamed(answering, prompts, letterhead, asked.with_usage, request.url.path)
    choices = await answering.choices(prompts)
    usage = usage_of(answering.prompt_tokens(prompts), choices)
    return answer(
        letterhead.chat(choices, usage) if isinstance(asked, ChatRequest) else letterhead.completion(choices, usage)
    )


def _served(office: Office, name: str | None) -> Served:
    named = name in [each.name for each in office.shelf.all()]
    try:
        return office.served(None if name == _UNNAMED and not named else name)
    except Refusal as refusal:
        refusal.extra["param"] = "model"
        raise
