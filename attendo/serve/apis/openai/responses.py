"""Response schemas of OpenAI's API and its server-sent event stream."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from attendo.serve.apis.openai.completion import CompletionRunner, OpenAIChoice
from attendo.serve.apis.openai.prompts import Prompt
from attendo.serve.http.errors import to_api_error

DONE = b"data: [DONE]\n\n"


class OpenAIModelInfo(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "attendo"


class OpenAIModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[OpenAIModelInfo]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class ChatResponse(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class CompletionChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class CompletionResponse(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


@dataclass(frozen=True)
class ResponseEnvelope:
    """Fields shared by a response and all chunks of a stream: id, model, time."""

    id_prefix: Literal["chatcmpl", "cmpl"]
    model: str
    id_suffix: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def build_chat(self, choices: Sequence[OpenAIChoice], usage: Usage) -> ChatResponse:
        chat_choices = [
            ChatChoice(index=n, message=AssistantMessage(content=each.text), finish_reason=each.finish_reason)
            for n, each in enumerate(choices)
        ]
        return ChatResponse(id=self._id, created=self.created, model=self.model, choices=chat_choices, usage=usage)

    def build_completion(self, choices: Sequence[OpenAIChoice], usage: Usage) -> CompletionResponse:
        completion_choices = [
            CompletionChoice(index=n, text=each.text, finish_reason=each.finish_reason)
            for n, each in enumerate(choices)
        ]
        return CompletionResponse(
            id=self._id, created=self.created, model=self.model, choices=completion_choices, usage=usage
        )

    def build_chunk(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Build one chunk of a stream."""
        kind = "chat.completion.chunk" if self.id_prefix == "chatcmpl" else "text_completion"
        return {
            "id": self._id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    @property
    def _id(self) -> str:
        return f"{self.id_prefix}-{self.id_suffix}"


def count_usage(prompt_tokens: int, choices: Sequence[OpenAIChoice]) -> Usage:
    completion_tokens = sum(each.tokens for each in choices)
    return Usage(
        prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, total_tokens=prompt_tokens + completion_tokens
    )


async def stream_completion(
    runner: CompletionRunner, prompts: Sequence[Prompt], envelope: ResponseEnvelope, with_usage: bool, path: str
) -> StreamingResponse:
    """Start the stream. Invalid requests raise before it starts; a later error is sent as an event and ends it."""
    chunks = _stream_chunks(runner, prompts, envelope, with_usage)
    first = await anext(chunks)
    # Disable buffering in proxies.
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_stream_events(first, chunks, path), media_type="text/event-stream", headers=headers)


async def _stream_events(first: Any, chunks: AsyncGenerator[Any, None], path: str) -> AsyncIterator[bytes]:
    async with aclosing(chunks):
        yield _encode_event(first)
        try:
            async for chunk in chunks:
                yield _encode_event(chunk)
            yield DONE
        except Exception as error:  # the last event, as of OpenAI's servers
            yield _encode_event(to_api_error(error).content(path))


async def _stream_chunks(
    runner: CompletionRunner, prompts: Sequence[Prompt], envelope: ResponseEnvelope, with_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of one prompt after the other. `index` identifies the prompt."""
    nothing = {"usage": None} if with_usage else {}
    choices: list[OpenAIChoice] = []
    for index, prompt in enumerate(prompts):
        started = False
        async with aclosing(runner.stream(prompt)) as parts:
            async for new in parts:
                if not started and envelope.id_prefix == "chatcmpl":
                    yield envelope.build_chunk([_role_delta(index)]) | nothing
                started = True
                if isinstance(new, str):
                    yield envelope.build_chunk([_text_delta(envelope, index, new)]) | nothing
                else:
                    choices.append(new)
                    yield envelope.build_chunk([_finish_delta(envelope, index, new)]) | nothing
    if with_usage:
        usage: Usage = count_usage(runner.count_prompt_tokens(prompts), choices)
        yield envelope.build_chunk([]) | {"usage": usage.model_dump()}


def _role_delta(index: int) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""}
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def _text_delta(envelope: ResponseEnvelope, index: int, text: str) -> dict[str, Any]:
    content = {"delta": {"content": text}} if envelope.id_prefix == "chatcmpl" else {"text": text}
    return {"index": index, **content, "finish_reason": None, "logprobs": None}


def _finish_delta(envelope: ResponseEnvelope, index: int, choice: OpenAIChoice) -> dict[str, Any]:
    content: dict[str, Any] = {"delta": {}} if envelope.id_prefix == "chatcmpl" else {"text": ""}
    return {"index": index, **content, "finish_reason": choice.finish_reason, "logprobs": None}


def _encode_event(content: Any) -> bytes:
    # JSON contains no raw line break, so one data line is enough.
    return b"data: %b\n\n" % to_json(content)
