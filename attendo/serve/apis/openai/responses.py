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

from attendo.serve.apis.openai.completion import Answering, Choice
from attendo.serve.apis.openai.prompts import Prompt
from attendo.serve.http.errors import refusal_of

DONE = b"data: [DONE]\n\n"


class ModelReply(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "attendo"


class ModelsReply(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelReply]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class MessageReply(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: MessageReply
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class ChatReply(BaseModel):
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


class CompletionReply(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


@dataclass(frozen=True)
class Letterhead:
    """What all parts of one answer begin with."""

    kind: Literal["chatcmpl", "cmpl"]
    model: str
    number: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def chat(self, choices: Sequence[Choice], usage: Usage) -> ChatReply:
        told = [
            ChatChoice(index=n, message=MessageReply(content=each.text), finish_reason=each.finish_reason)
            for n, each in enumerate(choices)
        ]
        return ChatReply(id=self._id, created=self.created, model=self.model, choices=told, usage=usage)

    def completion(self, choices: Sequence[Choice], usage: Usage) -> CompletionReply:
        told = [
            CompletionChoice(index=n, text=each.text, finish_reason=each.finish_reason)
            for n, each in enumerate(choices)
        ]
        return CompletionReply(id=self._id, created=self.created, model=self.model, choices=told, usage=usage)

    def chunk(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Of a stream."""
        kind = "chat.completion.chunk" if self.kind == "chatcmpl" else "text_completion"
        return {
            "id": self._id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    @property
    def _id(self) -> str:
        return f"{self.kind}-{self.number}"


def usage_of(prompt_tokens: int, choices: Sequence[Choice]) -> Usage:
    said = sum(each.tokens for each in choices)
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=said, total_tokens=prompt_tokens + said)


async def streamed(
    answering: Answering, prompts: Sequence[Prompt], letterhead: Letterhead, with_usage: bool, path: str
) -> StreamingResponse:
    """What cannot be met is refused before it begins; trouble behind that is an event of its own, and the last one."""
    chunks = _chunks(answering, prompts, letterhead, with_usage)
    first = await anext(chunks)
    # Proxies would gather what is to be seen as it comes.
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_events(first, chunks, path), media_type="text/event-stream", headers=headers)


async def _events(first: Any, chunks: AsyncGenerator[Any, None], path: str) -> AsyncIterator[bytes]:
    async with aclosing(chunks):
        yield _event(first)
        try:
            async for chunk in chunks:
                yield _event(chunk)
        except Exception as error:
            yield _event(refusal_of(error).content(path))
        yield DONE


async def _chunks(
    answering: Answering, prompts: Sequence[Prompt], letterhead: Letterhead, with_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """The prompts one after the other, told apart by their index."""
    nothing = {"usage": None} if with_usage else {}
    choices: list[Choice] = []
    for index, prompt in enumerate(prompts):
        begun = False
        async with aclosing(answering.stream(prompt)) as told:
            async for new in told:
                if not begun and letterhead.kind == "chatcmpl":
                    yield letterhead.chunk([_begin(index)]) | nothing
                begun = True
                if isinstance(new, str):
                    yield letterhead.chunk([_part(letterhead, index, new)]) | nothing
                else:
                    choices.append(new)
                    yield letterhead.chunk([_end(letterhead, index, new)]) | nothing
    if with_usage:
        usage: Usage = usage_of(answering.prompt_tokens(prompts), choices)
        yield letterhead.chunk([]) | {"usage": usage.model_dump()}


def _begin(index: int) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""}
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def _part(letterhead: Letterhead, index: int, text: str) -> dict[str, Any]:
    told = {"delta": {"content": text}} if letterhead.kind == "chatcmpl" else {"text": text}
    return {"index": index, **told, "finish_reason": None, "logprobs": None}


def _end(letterhead: Letterhead, index: int, choice: Choice) -> dict[str, Any]:
    told: dict[str, Any] = {"delta": {}} if letterhead.kind == "chatcmpl" else {"text": ""}
    return {"index": index, **told, "finish_reason": choice.finish_reason, "logprobs": None}


def _event(content: Any) -> bytes:
    # JSON has no bare line break, so one line of data holds all of it.
    return b"data: %b\n\n" % to_json(content)
