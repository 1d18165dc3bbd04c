"""Adapters for the APIs of a load test: LibreTranslate, attendo's own API, and OpenAI with streaming."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attendo.bench.load_test.http_client import HttpClient, HttpClientError, HttpRequest
from attendo.errors import UsageError

Api = Literal["libretranslate", "own", "openai"]


@dataclass(frozen=True)
class ParsedResponse:
    """Text of a response, and its token count if the API reports it."""

    text: str
    tokens: int | None = None


@dataclass(frozen=True)
class ApiAdapter(ABC):
    """Converts a text to a request and a response to a text. `fields` are added to every request body."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def build_request(self, text: str) -> HttpRequest: ...

    def has_text(self, data: bytes) -> bool:
        """Return True if the body so far is a stream that contains text; False without streaming."""
        return False

    @abstractmethod
    def parse_response(self, body: bytes) -> ParsedResponse:
        """Parse a complete body. Raise `ValueError` if it is incomplete."""


async def make_adapter(api: Api, http_client: HttpClient, extra_fields: Mapping[str, Any] | None = None) -> ApiAdapter:
    """Make the adapter of an API. The default languages or model are the first that the server lists.

    `extra_fields` are added to every body and override the defaults.
    """
    extra_fields = dict(extra_fields or {})
    if api == "own":
        return NativeAdapter(extra_fields)
    if api == "openai":
        named = extra_fields.get("model") or _pick_served_name(
            "/v1/models", await _fetch_json(http_client, "/v1/models"), "data", 0, "id"
        )
        return OpenAIAdapter({"model": named, **extra_fields})
    if "source" in extra_fields and "target" in extra_fields:
        return LibreTranslateAdapter(extra_fields)
    languages = await _fetch_json(http_client, "/languages")
    source = extra_fields.get("source") or _pick_served_name("/languages", languages, 0, "code")
    targets = [each["targets"] for each in languages if each.get("code") == source]
    return LibreTranslateAdapter(
        {"source": source, "target": _pick_served_name("/languages", targets, 0, 0), **extra_fields}
    )


class LibreTranslateAdapter(ApiAdapter):
    """`POST /translate`, as Mastodon calls it."""

    def build_request(self, text: str) -> HttpRequest:
        return HttpRequest("/translate", _encode_json({"q": text, "format": "text", **self.fields}))

    def parse_response(self, body: bytes) -> ParsedResponse:
        return ParsedResponse(str(_get_nested(json.loads(body), "translatedText")))


class NativeAdapter(ApiAdapter):
    """`POST /api/v1/generate`, which accepts all decoding options."""

    def build_request(self, text: str) -> HttpRequest:
        return HttpRequest("/api/v1/generate", _encode_json({"texts": [text], **self.fields}))

    def parse_response(self, body: bytes) -> ParsedResponse:
        best = _get_nested(json.loads(body), "results", 0)
        return ParsedResponse(str(_get_nested(best, "text")), len(_get_nested(best, "ids")))


class OpenAIAdapter(ApiAdapter):
    """`POST /v1/chat/completions` with streaming. The last event has the token count."""

    def build_request(self, text: str) -> HttpRequest:
        request = {"messages": [{"role": "user", "content": text}], "stream": True}
        return HttpRequest(
            "/v1/chat/completions", _encode_json({**request, "stream_options": {"include_usage": True}, **self.fields})
        )

    def has_text(self, data: bytes) -> bool:
        return any(_read_delta(each) for each in _parse_events(data, complete=False))

    def parse_response(self, body: bytes) -> ParsedResponse:
        events = _parse_events(body, complete=True)
        usage = [each["usage"] for each in events if each.get("usage")]
        return ParsedResponse("".join(map(_read_delta, events)), usage[-1]["completion_tokens"] if usage else None)


def _parse_events(body: bytes, complete: bool) -> list[dict[str, Any]]:
    """Return the data of each event. Raise `ValueError` if `complete` and the stream has an error or no end."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    found = []
    for each in lines:
        try:
            event = json.loads(each)
        except ValueError:
            continue  # [DONE], or an incomplete event
        if complete and "error" in event:
            raise ValueError("the stream ended in an error")
        found.append(event)
    if complete and lines[-1:] != [b"[DONE]"]:
        raise ValueError("the stream broke off")
    return found


def _read_delta(event: Mapping[str, Any]) -> str:
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


async def _fetch_json(http_client: HttpClient, path: str) -> Any:
    try:
        response = await http_client.send(HttpRequest(path))
    except HttpClientError as error:
        raise UsageError("server_request_failed", reason=str(error)) from None
    if response.status != 200:
        raise UsageError("server_api_status", path=path, status=response.status)
    try:
        return json.loads(response.body)
    except ValueError:
        raise UsageError("server_api_not_json", path=path) from None


def _pick_served_name(path: str, found: Any, *steps: str | int) -> str:
    """Return a name from the server's listing. Raise `UsageError` if it is missing."""
    try:
        return str(_get_nested(found, *steps))
    except ValueError:
        raise UsageError("server_lists_no_model", path=path) from None


def _get_nested(found: Any, *steps: str | int) -> Any:
    try:
        for step in steps:
            found = found[step]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"there is no {'.'.join(map(str, steps))} in the answer") from None
    return found


def _encode_json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()
