"""Conversations as lists of messages, `{"role": "user", "content": "..."}`."""

from collections.abc import Sequence
from typing import Any

from attendo.data.line_breaks import as_line
from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.pipelines.turns import latest_turns, most_tokens
from attendo.text_model import TextModel

Message = dict[str, Any]


def is_conversation(given: Any) -> bool:
    """One of messages; several are a list of such."""
    return isinstance(given, list) and bool(given) and all(isinstance(each, dict) for each in given)


def source_of(messages: Sequence[Message], model: TextModel, config: GenerationConfig) -> str:
    """What the model reads of them with these settings."""
    texts = [_text(message) for message in messages]
    if messages[-1]["role"] != "user":
        raise UsageError("last_message_not_user")
    most, encode = most_tokens(model, config), model.source_tokenizer.encode
    return latest_turns(texts, model, model.about.get("context_turns"), lambda text: len(encode(text)) <= most)


def answered(messages: Sequence[Message], text: str) -> list[Message]:
    return [*messages, {"role": "assistant", "content": text}]


def shown(value: Any) -> str:
    """Of a value that is not what it should be."""
    whole = repr(value)
    return whole if len(whole) <= 80 else f"{whole[:77]}..."


def _text(message: Message) -> str:
    role, content = message.get("role"), message.get("content")
    if role == "system":
        raise UsageError("system_message_unsupported")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise UsageError("invalid_message", message=shown(message))
    return as_line(content)
