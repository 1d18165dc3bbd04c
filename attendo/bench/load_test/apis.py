"""The shapes that texts are asked for in: LibreTranslate's, our own, and OpenAI's as a stream."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from attendo.bench.load_test.http_client import Question, Wire, WireError
from attendo.errors import UsageError

Api = Literal["libretranslate", "own", "openai"]


@dataclass(frozen=True)
class Said:
    """What an answer holds; tokens where it tells them."""

    text: str
    tokens: int | None = None


class Shape(Protocol):
    """How a text becomes a question, and a reply a text."""

    def question(self, text: str) -> Question: ...

    def speaks(self, part: bytes) -> bool:
        """Whether this part of a stream holds a part of the text; without a stream there is no first token."""

    def said(self, body: bytes) -> Said:
        """A body that is not whole is a `ValueError`."""


async def shape_for(api: Api, wire: Wire, more: Mapping[str, Any] | None = None) -> Shape:
    """Asks the server what it serves; the first pair of languages or model is taken unless `more` names another.

    `more` are fields that every body gets.
    """
    more = dict(more or {})
    if api == "own":
        return Own(more)
    if api == "openai":
        named = more.get("model") or _served("/v1/models", await _told(wire, "/v1/models"), "data", 0, "id")
        return OpenAI({"model": named, **more})
    if "source" in more and "target" in more:
        return LibreTranslate(more)
    languages = await _told(wire, "/languages")
    source = more.get("source") or _served("/languages", languages, 0, "code")
    targets = [each["targets"] for each in languages if each.get("code") == source]
    return LibreTranslate({"source": source, "target": _served("/languages", targets, 0, 0), **more})


@dataclass(frozen=True)
class LibreTranslate:
    """`POST /translate`, as Mastodon asks."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    def question(self, text: str) -> Question:
        return Question("/translate", _json({"q": text, "format": "text", **self.fields}))

    def speaks(self, part: bytes) -> bool:
        return False

    def said(self, body: bytes) -> Said:
        return Said(str(_at(json.loads(body), "translatedText")))


@dataclass(frozen=True)
class Own:
    """`POST /api/v1/generate`, which takes every option of decoding."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    def question(self, text: str) -> Question:
        return Question("/api/v1/generate", _json({"texts": [text], **self.fields}))

    def speaks(self, part: bytes) -> bool:
        return False

    def said(self, body: bytes) -> Said:
        best = _at(json.loads(body), "results", 0)
        return Said(str(_at(best, "text")), len(_at(best, "ids")))


@dataclass(frozen=True)
class OpenAI:
    """`POST /v1/chat/completions` as a stream of events, the last of which tells how many tokens there were."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    def question(self, text: str) -> Question:
        asked = {"messages": [{"role": "user", "content": text}], "stream": True}
        return Question(
            "/v1/chat/completions", _json({**asked, "stream_options": {"include_usage": True}, **self.fields})
        )

    def speaks(self, part: bytes) -> bool:
        # An event that is cut in two is heard with its second half, a moment later.
        return any(_content(each) for each in _events(part, whole=False))

    def said(self, body: bytes) -> Said:
        events = _events(body, whole=True)
        usage = [each["usage"] for each in events if each.get("usage")]
        return Said("".join(map(_content, events)), usage[-1]["completion_tokens"] if usage else None)


def _events(body: bytes, whole: bool) -> list[dict[str, Any]]:
    """The data of each event; one that tells of trouble, or an end that is missing, is a `ValueError`."""
    told = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    if whole and (not told or told[-1] != b"[DONE]"):
        raise ValueError("the stream broke off")
    found = []
    for each in told:
        try:
            event = json.loads(each)
        except ValueError:
            continue  # [DONE], or a half
        if whole and "error" in event:
            raise ValueError("the stream ended in an error")
        found.append(event)
    return found


def _content(event: Mapping[str, Any]) -> str:
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


async def _told(wire: Wire, path: str) -> Any:
    try:
        reply = await wire.ask(Question(path))
    except WireError as error:
        raise UsageError("server_request_failed", reason=str(error)) from None
    if reply.status != 200:
        raise UsageError("server_api_status", path=path, status=reply.status)
    try:
        return json.loads(reply.body)
    except ValueError:
        raise UsageError("server_api_not_json", path=path) from None


def _served(path: str, found: Any, *steps: str | int) -> str:
    """A name among what a server says that it has."""
    try:
        return str(_at(found, *steps))
    except ValueError:
        raise UsageError("server_lists_no_model", path=path) from None


def _at(found: Any, *steps: str | int) -> Any:
    try:
        for step in steps:
            found = found[step]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"there is no {'.'.join(map(str, steps))} in the answer") from None
    return found


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()
