"""The OpenAPI file says what really comes: every status of a route with its shape, also what is refused before it."""

from collections import defaultdict
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict

from attendo.messages import MESSAGES
from attendo.serve.http.errors import ApiName, api_for_path, status_for
from attendo.serve.settings import ServeSettings

Responses = dict[int | str, dict[str, Any]]
_SCHEMA_PREFIX = "#/components/schemas/"

# What any request may be told, whatever it asks for.
COMMON_ERRORS = (
    "bad_host",
    "two_lengths",
    "body_too_slow",
    "body_too_large",
    "bad_encoding",
    "headers_too_large",
    "failed",
)
KEY_ERRORS = ("no_key", "bad_key")
# What whoever has something computed may be told.
MODEL_ERRORS = (
    "bad_json",
    "bad_request",
    "bad_setting",
    "above_limit",
    "text_too_long",
    "unknown_model",
    "busy",
    "too_late",
    "draining",
    "stopped",
    "failed",  # of all, but whoever names a reason of the same status names all of them
    "model_error",
)
# For whoever watches over the server, for a browser, and for programs that ask what a key would be for.
ROUTES_WITHOUT_KEY = (
    "GET /livez",
    "GET /readyz",
    "GET /health",
    "GET /languages",
    "GET /frontend/settings",
    "GET /",
    "GET /page/{path}",
)


class NativeErrorDetail(BaseModel):
    """Both languages, and what else may help: choices for a text that is too long, the field at fault."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str
    message_zh: str


class NativeError(BaseModel):
    error: NativeErrorDetail


class DeepLError(BaseModel):
    message: str
    detail: str


class OpenAIErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    error: OpenAIErrorDetail


class PlainError(BaseModel):
    """As LibreTranslate and Hugging Face have it."""

    error: str


ERROR_SCHEMAS: dict[ApiName, type[BaseModel]] = {
    "ours": NativeError,
    "deepl": DeepLError,
    "openai": OpenAIError,
    "huggingface": PlainError,
    "libretranslate": PlainError,
}
# An event as it is once its lines are put together; what it tells is JSON.
EVENT_STREAM_CONTENT: dict[str, Any] = {
    "text/event-stream": {
        "itemSchema": {
            "type": "object",
            "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
            "required": ["data"],
        }
    }
}


def error_responses(api: ApiName, *codes: str) -> Responses:
    """`responses=` of a route that may be refused for these reasons. `COMMON_ERRORS` need not be named."""
    found: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        found[status_for(api, code, MESSAGES[code].status)].append(code)
    # By name, not as a model: FastAPI would have it come as whatever kind the route answers with.
    content = {"application/json": {"schema": {"$ref": _SCHEMA_PREFIX + ERROR_SCHEMAS[api].__name__}}}
    return {
        status: {"description": f"{HTTPStatus(status).phrase}: {', '.join(named)}", "content": content}
        for status, named in found.items()
    }


def json_or_events(schema: type[BaseModel]) -> Responses:
    """JSON, or server-sent events where they are asked for."""
    return {200: {"model": schema, "content": EVENT_STREAM_CONTENT}}


def install_openapi(app: FastAPI, settings: ServeSettings) -> None:
    """Has `app` make its file so, when it is first asked for."""

    def file() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            app.openapi_schema = _complete_schema(made, settings)
        return app.openapi_schema

    app.openapi = file  # type: ignore[method-assign]


def _complete_schema(schema: dict[str, Any], settings: ServeSettings) -> dict[str, Any]:
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    # FastAPI tells of 422, which never comes: what does not fit is 400, in the shape of its API.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, operations in schema["paths"].items():
        shape = api_for_path(path)
        _add_schema(schemas, ERROR_SCHEMAS[shape])
        for method, operation in operations.items():
            with_key = bool(settings.keys) and f"{method.upper()} {path}" not in ROUTES_WITHOUT_KEY
            responses = operation["responses"]
            responses.pop("422", None)
            for status, told in error_responses(shape, *COMMON_ERRORS, *(KEY_ERRORS if with_key else ())).items():
                responses.setdefault(str(status), told)
            if told := responses.get("200", {}).get("content", {}).get("text/event-stream"):
                told.pop("schema", None)  # which FastAPI adds: a stream is no text but its events
            operation["responses"] = dict(sorted(responses.items()))
            if with_key:
                operation["security"] = [{"key": []}]
    if settings.keys:
        schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return schema


def _add_schema(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    if model.__name__ not in schemas:
        made = model.model_json_schema(ref_template=f"{_SCHEMA_PREFIX}{{model}}")
        schemas.update(made.pop("$defs", {}))
        schemas[model.__name__] = made
