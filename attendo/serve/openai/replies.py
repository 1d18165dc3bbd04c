"""What is answered, in OpenAI's shapes."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from attendo.serve.openai.answering import Choice


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
