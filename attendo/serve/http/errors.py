"""API errors and how they are rendered in the error format of each API."""

import logging
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from attendo.errors import AttendoError, ErrorList, Localized, MessagePart, ModelError, render_message
from attendo.messages import MESSAGES
from attendo.messages.message import LANGUAGES, Language
from attendo.serve.http.access_log import CURRENT, current_id, where
from attendo.settings import nearest

RETRY_SECONDS = {429: 1, 503: 5}  # after which it is worth asking again: told with these statuses
_FAULTS_TOLD = 5
_TOLD = 100  # signs of what was sent
_LONGEST = 2000  # characters of all faults of a request
_ALIKE = 0.7  # from 0 to 1: how much of two names is the same
_FORMS = ("multipart/", "application/x-www-form-urlencoded")
_log = logging.getLogger("attendo.serve")
Shape = Literal["ours", "deepl", "openai", "huggingface", "libretranslate"]
LIBRETRANSLATE = ("/translate", "/translate_file", "/detect", "/languages", "/suggest", "/frontend/settings")
PREFIXES: dict[str, Shape] = {
    "/v2/": "deepl",
    "/v1/": "openai",
    "/hf/": "huggingface",
    "/download_file/": "libretranslate",
}
# Clients of DeepL and LibreTranslate take 403 for a matter of keys; all else has one status everywhere.
STATUSES: dict[Shape, dict[str, int]] = {
    "deepl": {"no_key": 403, "bad_key": 403},
    "libretranslate": {"no_key": 403, "bad_key": 403},
}
# Software compares these words.
LIBRETRANSLATE_WORDS = {
    "no_key": "Invalid API key",
    "bad_key": "Invalid API key",
    "bad_json": "Invalid JSON format",
    "busy": "Slowdown: {english}",
}
OPENAI_CODES = {"no_key": "invalid_api_key", "bad_key": "invalid_api_key", "unknown_model": "model_not_found"}


class Refusal(HTTPException):
    """A request that cannot be met, by the code of its message; `extra` is told beside it.

    `extra={"param": name}` names the field at fault, for which OpenAI's errors have a place.
    """

    def __init__(self, code: str, extra: Mapping[str, Any] | None = None, **values: Any) -> None:
        super().__init__(MESSAGES[code].status, code)
        self.code, self.extra = code, dict(extra or {})
        self.english, self.chinese = (render_message(code, values, language) for language in LANGUAGES)

    def content(self, path: str = "", request_id: str | None = None) -> dict[str, Any]:
        """In the shape of the API that `path` belongs to; without one, in our own.

        The id is that of the request that is being answered, unless another is given.
        """
        told = {"code": self.code, "message": self.english, "message_zh": self.chinese, **self.extra}
        if (number := request_id or current_id()) is not None:
            told["request_id"] = number
        return content_in(shape_of(path), self.status(path), told)

    def status(self, path: str) -> int:
        return status_in(shape_of(path), self.code, self.status_code)


def rendered(refusal: Refusal, path: str, request_id: str | None = None) -> Response:
    """The answer to a request at `path` that is refused."""
    answered = answer(refusal.content(path, request_id), refusal.status(path))
    if answered.status_code in RETRY_SECONDS:
        answered.headers["retry-after"] = str(RETRY_SECONDS[answered.status_code])
    if answered.status_code == 401:
        answered.headers["www-authenticate"] = "Bearer"
    return answered


def refused(refusal: Refusal, path: str) -> Response:
    """Rendered for the request that is being answered now."""
    return rendered(_noted(refusal), path, current_id())


def answer(content: Any, status: int = 200) -> Response:
    """JSON, with null for what is no finite number."""
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def refusal_of(error: Exception) -> Refusal:
    """What to tell of an error, wherever it was raised. It is noted for whoever counts."""
    if isinstance(error, Refusal):
        refusal = error
    elif isinstance(error, ModelError):  # which speaks of the model, never of what was asked
        _log.error("a model failed: %s", error)
        refusal = Refusal("model_error", detail=error)
    elif isinstance(error, AttendoError):
        refusal = Refusal("bad_setting", detail=error)
    else:
        _log.error("a request failed: %s", where(error))
        refusal = Refusal("failed")
    return _noted(refusal)


def handle_errors(app: FastAPI, known: Sequence[str]) -> None:
    """`known` are the names of fields: a mistyped one is told the nearest."""

    async def unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return refused(_unfit(error, known), request.scope["path"])

    app.add_exception_handler(RequestValidationError, unfit)
    app.add_exception_handler(HTTPException, _other)
    app.add_exception_handler(AttendoError, _told)
    app.add_exception_handler(Exception, _told)


async def _told(request: Request, error: Exception) -> Response:
    return refused(refusal_of(error), request.scope["path"])


async def _other(request: Request, error: Exception) -> Response:
    """What Starlette and FastAPI refuse by themselves is told as we tell it."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    response = refused(error if isinstance(error, Refusal) else _ours(request, error), path)
    response.headers.update(error.headers or {})  # with 405, which methods there are
    return response


def _ours(request: Request, error: HTTPException) -> Refusal:
    path, detail = request.scope["path"][:_TOLD], str(error.detail)[:_TOLD]
    if error.status_code == 405:
        return Refusal("bad_method", path=path, method=request.method[:_TOLD])
    if error.status_code == 404:
        return Refusal("not_found", path=path)
    if request.headers.get("content-type", "").startswith(_FORMS):
        return Refusal("bad_form", detail=detail)
    return Refusal("bad_json", detail=detail)


def _noted(refusal: Refusal) -> Refusal:
    """For whoever counts, and for the line that the request will have in the log."""
    if (entry := CURRENT.get()) is not None:
        entry.refused = refusal.code
    return refusal


def _unfit(error: RequestValidationError, known: Sequence[str]) -> Refusal:
    faults = error.errors()[:_FAULTS_TOLD]
    param = _place(faults[0])
    detail = ErrorList([_fault(each, known) for each in faults], limit=_LONGEST)
    return Refusal("bad_request", {"param": param} if param else None, detail=detail)


def _place(fault: Mapping[str, Any]) -> str:
    """The field that is at fault; none where it is the body as a whole."""
    return ".".join(str(part) for part in fault["loc"] if part != "body")[:_TOLD]


def _fault(fault: Mapping[str, Any], known: Sequence[str]) -> MessagePart:
    name = _place(fault)
    if not name:  # there is no body, or it was sent as something else
        return MessagePart("body_not_an_object")
    last = str(fault["loc"][-1])[:_TOLD]
    others = [each for each in known if each != last]  # another request may have a field of that name
    code = f"field_{fault['type']}"
    if code not in MESSAGES:
        return MessagePart("field_unusable", name=name)
    values = {**(fault.get("ctx") or {}), "suggestion": suggest(last, others)}
    if "expected" in values:
        values["expected"] = _Choices(str(values["expected"]))
    return MessagePart(code, name=name, **values)


class _Choices(Localized):
    """The values that a field may have, of which pydantic makes the list 'a', 'b' or 'c'."""

    def __init__(self, choices: str) -> None:
        self._choices = choices

    def text(self, language: Language) -> str:
        return self._choices if language == "en" else re.sub(r"'(?:, | or )'", "'、'", self._choices)


def suggest(name: str, known: Sequence[str]) -> str:
    """What a mistyped name may have been meant to be.

    A request that uses the names of another API has not mistyped them: `beam` is not meant to be `stream`.
    """
    return nearest(name, [each for each in known if SequenceMatcher(None, each, name).ratio() >= _ALIKE])


def shape_of(path: str) -> Shape:
    if path in LIBRETRANSLATE:
        return "libretranslate"
    if path in ("/", "/hf"):  # where Hugging Face's client posts to; a browser that gets the page at / reads no errors
        return "huggingface"
    return next((shape for prefix, shape in PREFIXES.items() if path.startswith(prefix)), "ours")


def status_in(shape: Shape, code: str, status: int) -> int:
    return STATUSES.get(shape, {}).get(code, status)


def content_in(shape: Shape, status: int, told: Mapping[str, Any]) -> dict[str, Any]:
    """`told` is what our own API tells: a code, a message in English, and more that only some have a place for."""
    code, english = told["code"], told["message"]
    if shape == "deepl":
        return {"message": english, "detail": code}
    if shape == "openai":
        error = {
            "message": english,
            "type": _openai_type(status),
            "param": told.get("param"),
            "code": OPENAI_CODES.get(code, code),
        }
        return {"error": error}
    if shape == "huggingface":
        return {"error": english}
    if shape == "libretranslate":
        return {"error": LIBRETRANSLATE_WORDS.get(code, "{english}").format(english=english)}
    return {"error": dict(told)}


def _openai_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
