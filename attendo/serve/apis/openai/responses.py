"""Response schemas of OpenAI's API and its server-sent event stream."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_json

from attendo.serve.apis.openai.completion import CompletionRunner, OpenAIChoice
from attendo.serve.apis.openai.prompts import Prompt
from attendo.serve.http.errors import to_api_error
from attendo.serve.http.sse import EventStream, await_first

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
    """Builds a response, or all chunks of a stream, with the same id, model and time."""

    is_chat: bool
    model: str
    id_suffix: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def build_response(self, choices: Sequence[OpenAIChoice], usage: Usage) -> dict[str, Any]:
        """Build a `ChatResponse` or `CompletionResponse`."""
        built = []
        for index, each in enumerate(choices):
            message = {"role": "assistant", "content": each.text}
            content = {"message": message} if self.is_chat else {"text": each.text}
            built.append(self._build_choice(index, content, each.finish_reason))
        return self._build("chat.completion" if self.is_chat else "text_completion", built) | {"usage": usage}

    def build_chunk(self, index: int, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        """Build one chunk of a stream. A text completion has the new text in place of a delta."""
        content = {"delta": delta} if self.is_chat else {"text": delta.get("content", "")}
        return self._build(self._chunk_type, [self._build_choice(index, content, finish_reason)])

    def build_usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return self._build(self._chunk_type, []) | {"usage": usage}

    @property
    def _chunk_type(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def _build_choice(self, index: int, content: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, **content, "finish_reason": finish_reason, "logprobs": None}

    def _build(self, object_type: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        response_id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id_suffix}"
        return {
            "id": response_id,
            "object": object_type,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def count_usage(prompt_tokens: int, choices: Sequence[OpenAIChoice]) -> Usage:
    completion_tokens = sum(each.tokens for each in choices)
    return Usage(
        prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, total_tokens=prompt_tokens + completion_tokens
    )


async def stream_completion(
    runner: CompletionRunner, prompts: Sequence[Prompt], envelope: ResponseEnvelope, with_usage: bool, path: str
) -> EventStream:
    """Start the stream. Invalid requests raise before it starts; a later error is sent as an event and ends it."""
    chunks = await await_first(_stream_chunks(runner, prompts, envelope, with_usage))
    headers = {"x-accel-buffering": "no"}  # disables buffering in proxies
    return EventStream(_encode_chunks(chunks, path), chunks, headers=headers)


async def _encode_chunks(chunks: AsyncIterator[dict[str, Any]], path: str) -> AsyncGenerator[bytes, None]:
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
    no_usage = {"usage": None} if with_usage else {}
    choices: list[OpenAIChoice] = []
    for index, prompt in enumerate(prompts):
        started = False
        async with aclosing(runner.stream(prompt)) as parts:
            async for new in parts:
                if not started and envelope.is_chat:
                    yield envelope.build_chunk(index, {"role": "assistant", "content": ""}) | no_usage
                started = True
                if isinstance(new, str):
                    yield envelope.build_chunk(index, {"content": new}) | no_usage
                else:
                    choices.append(new)
                    yield envelope.build_chunk(index, {}, new.finish_reason) | no_usage
    if with_usage:
        yield envelope.build_usage_chunk(count_usage(runner.count_prompt_tokens(prompts), choices))


def _encode_event(content: Any) -> bytes:
    # JSON contains no raw line break, so one data line is enough.
    return b"data: %b\n\n" % to_json(content)
