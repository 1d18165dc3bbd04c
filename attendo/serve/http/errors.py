"""API errors and how they are rendered in the error format of each API."""

import logging
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from attendo.errors import AttendoError, ErrorList, MessagePart, ModelError, render_message
from attendo.messages import LANGUAGES, MESSAGES
from attendo.serve.http.access_log import current_request, current_request_id, error_location
from attendo.settings import describe_fault, suggest_name

RETRY_SECONDS = {429: 1, 503: 5}  # Retry-After header of these statuses
_MAX_FAULTS = 5
_MAX_VALUE_CHARACTERS = 100  # of a value from the request
_MAX_DETAIL_CHARACTERS = 2000  # of all validation errors of a request
_MIN_SIMILARITY = 0.7  # from 0 to 1, `SequenceMatcher.ratio` of two names
_FORM_CONTENT_TYPES = ("multipart/", "application/x-www-form-urlencoded")
_log = logging.getLogger("attendo.serve")
ApiName = Literal["ours", "deepl", "openai", "huggingface", "libretranslate"]
LIBRETRANSLATE_PATHS = ("/translate", "/translate_file", "/detect", "/languages", "/suggest", "/frontend/settings")
API_PREFIXES: dict[str, ApiName] = {
    "/v2/": "deepl",
    "/v3/": "deepl",
    "/v1/": "openai",
    "/hf/": "huggingface",
    "/download_file/": "libretranslate",
}
# Clients of DeepL and LibreTranslate expect 403 for key errors. All other errors have the same status in every API.
STATUS_OVERRIDES: dict[ApiName, dict[str, int]] = {
    "deepl": {"no_key": 403, "bad_key": 403},
    "libretranslate": {"no_key": 403, "bad_key": 403},
}
# Clients compare these strings.
LIBRETRANSLATE_MESSAGES = {
    "no_key": "Invalid API key",
    "bad_key": "Invalid API key",
    "bad_json": "Invalid JSON format",
    "busy": "Slowdown: {english}",
}
OPENAI_CODES = {"no_key": "invalid_api_key", "bad_key": "invalid_api_key", "unknown_model": "model_not_found"}


class ApiError(HTTPException):
    """Error response with the code of its message; `extra` adds fields to the body.

    `extra={"param": name}` names the invalid field, as OpenAI's errors do.
    """

    def __init__(self, code: str, extra: Mapping[str, Any] | None = None, **values: Any) -> None:
        super().__init__(MESSAGES[code].status, code)
        self.code, self.extra = code, dict(extra or {})
        self.english, self.chinese = (render_message(code, values, language) for language in LANGUAGES)

    def content(self, path: str = "", request_id: str | None = None) -> dict[str, Any]:
        """Return the body in the error format of the API of `path`, by default the native one.

        The default of `request_id` is the id of the current request.
        """
        fields = {"code": self.code, "message": self.english, "message_zh": self.chinese, **self.extra}
        if (number := request_id or current_request_id()) is not None:
            fields["request_id"] = number
        return error_body(api_for_path(path), self.status(path), fields)

    def status(self, path: str) -> int:
        return status_for(api_for_path(path), self.code, self.status_code)


def render_error(error: ApiError, path: str) -> Response:
    """Return the error response to a request at `path`, and record its code."""
    _record_error(error)
    response = json_response(error.content(path), error.status(path))
    if response.status_code in RETRY_SECONDS:
        response.headers["retry-after"] = str(RETRY_SECONDS[response.status_code])
    if response.status_code == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def json_response(content: Any, status: int = 200) -> Response:
    """Return a JSON response. Numbers that are not finite become null."""
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def to_api_error(error: Exception) -> ApiError:
    """Convert any error to an `ApiError` and record its code for metrics and log."""
    if isinstance(error, ApiError):
        return _record_error(error)
    if isinstance(error, ModelError):  # about the model, not the request
        _log.error("a model failed: %s", error)
        return _record_error(ApiError("model_error", {"cause": error.code}, detail=error))
    if isinstance(error, AttendoError):
        return _record_error(ApiError("bad_setting", {"cause": error.code}, detail=error))
    _log.error("a request failed: %s", error_location(error))
    return _record_error(ApiError("failed"))


def handle_errors(app: FastAPI, known: Sequence[str]) -> None:
    """Install the exception handlers. `known` are field names, from which typos get a suggestion."""

    async def handle_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return render_error(_from_validation_error(error, known), request.scope["path"])

    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(AttendoError, _handle_exception)
    app.add_exception_handler(Exception, _handle_exception)


async def _handle_exception(request: Request, error: Exception) -> Response:
    return render_error(to_api_error(error), request.scope["path"])


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    """Render errors of Starlette and FastAPI in our formats."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    response = render_error(error if isinstance(error, ApiError) else _from_http_exception(request, error), path)
    response.headers.update(error.headers or {})  # such as Allow with status 405
    return response


def _from_http_exception(request: Request, error: HTTPException) -> ApiError:
    path, detail = request.scope["path"][:_MAX_VALUE_CHARACTERS], str(error.detail)[:_MAX_VALUE_CHARACTERS]
    if error.status_code == 405:
        return ApiError("bad_method", path=path, method=request.method[:_MAX_VALUE_CHARACTERS])
    if error.status_code == 404:
        return ApiError("not_found", path=path)
    if request.headers.get("content-type", "").startswith(_FORM_CONTENT_TYPES):
        return ApiError("bad_form", detail=detail)
    return ApiError("bad_json", detail=detail)


def _record_error(error: ApiError) -> ApiError:
    """Record the code for the metrics and the access log."""
    if (entry := current_request.get()) is not None:
        entry.refused = error.code
    return error


def _from_validation_error(error: RequestValidationError, known: Sequence[str]) -> ApiError:
    faults = error.errors()[:_MAX_FAULTS]
    param = _field_path(faults[0])
    detail = ErrorList([_describe_fault(each, known) for each in faults], max_length=_MAX_DETAIL_CHARACTERS)
    return ApiError("bad_request", {"param": param} if param else None, detail=detail)


def _field_path(fault: Mapping[str, Any]) -> str:
    """Return the path of the invalid field; empty for the whole body."""
    return ".".join(str(part) for part in fault["loc"] if part != "body")[:_MAX_VALUE_CHARACTERS]


def _describe_fault(fault: Mapping[str, Any], known: Sequence[str]) -> MessagePart:
    name = _field_path(fault)
    if not name:  # no body, or another content type
        return MessagePart("body_not_an_object")
    last = str(fault["loc"][-1])[:_MAX_VALUE_CHARACTERS]
    others = [each for each in known if each != last]  # another request may have a field of that name
    return describe_fault(fault, name, suggest(last, others))


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a suggestion for a mistyped name.

    Only similar names are suggested: a name of another API is not a typo, such as `beam` for `stream`.
    """
    return suggest_name(name, [each for each in known if SequenceMatcher(None, each, name).ratio() >= _MIN_SIMILARITY])


def api_for_path(path: str) -> ApiName:
    if path in LIBRETRANSLATE_PATHS:
        return "libretranslate"
    if path in ("/", "/hf"):  # Hugging Face's client posts here; browsers only GET the page
        return "huggingface"
    return next((shape for prefix, shape in API_PREFIXES.items() if path.startswith(prefix)), "ours")


def status_for(api: ApiName, code: str, status: int) -> int:
    return STATUS_OVERRIDES.get(api, {}).get(code, status)


def error_body(api: ApiName, status: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error body in the format of an API. `fields` are those of the native API."""
    code, english = fields["code"], fields["message"]
    if api == "deepl":
        return {"message": english, "detail": code}
    if api == "openai":
        error = {
            "message": english,
            "type": _openai_error_type(status),
            "param": fields.get("param"),
            "code": OPENAI_CODES.get(code, code),
        }
        return {"error": error}
    if api == "huggingface":
        return {"error": english}
    if api == "libretranslate":
        return {"error": LIBRETRANSLATE_MESSAGES.get(code, "{english}").format(english=english)}
    return {"error": dict(fields)}


def _openai_error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
