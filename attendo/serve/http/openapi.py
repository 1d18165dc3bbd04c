"""OpenAPI file with every status and error schema of a route, including errors of the middleware."""

from collections import defaultdict
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from attendo.messages import MESSAGES
from attendo.serve.http.errors import ApiName, api_for_path, status_for
from attendo.serve.settings import ServeSettings

Responses = dict[int | str, dict[str, Any]]
JSON, URL_ENCODED, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
_SCHEMA_PREFIX = "#/components/schemas/"

# Errors of any route.
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
# Errors of routes that use a model.
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
    "failed",  # also common, but a route that names one code of a status must name all
    "model_error",
)
# Routes of probes, of the browser page, and for clients that list languages before they have a key.
ROUTES_WITHOUT_KEY = (
    "GET /livez",
    "GET /readyz",
    "GET /health",
    "GET /languages",
    "GET /frontend/settings",
    "GET /download_file/{name}",  # the name has the key of the document
    "GET /",
    "GET /page/{path}",
)


class NativeErrorDetail(BaseModel):
    """Message in both languages. Other fields may help, such as choices for a long text or the invalid field."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str
    message_zh: str
    cause: str | None = Field(None, description="the library's code of the error behind bad_setting or model_error")


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
    """Error format of LibreTranslate and Hugging Face."""

    error: str


ERROR_SCHEMAS: dict[ApiName, type[BaseModel]] = {
    "ours": NativeError,
    "deepl": DeepLError,
    "openai": OpenAIError,
    "huggingface": PlainError,
    "libretranslate": PlainError,
}
JSON_OBJECT_CONTENT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}  # of any fields
# An event after its lines are joined; its data is JSON.
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
    """Return `responses=` of a route for these error codes. `COMMON_ERRORS` are added to every route."""
    found: dict[int, list[str]] = defaultdict(list)
    for code in codes:
        found[status_for(api, code, MESSAGES[code].status)].append(code)
    # A reference, not a model: FastAPI would use the media type of the route's response.
    content = {"application/json": {"schema": {"$ref": _SCHEMA_PREFIX + ERROR_SCHEMAS[api].__name__}}}
    return {
        status: {"description": f"{HTTPStatus(status).phrase}: {', '.join(named)}", "content": content}
        for status, named in found.items()
    }


def request_body(schemas: Mapping[str, Any], required: bool = True) -> dict[str, Any]:
    """Return `openapi_extra=` of a route that parses its body itself, from the schema of each media type."""
    content = {media_type: {"schema": schema} for media_type, schema in schemas.items()}
    return {"requestBody": {"required": required, "content": content}}


def json_or_events(schema: type[BaseModel]) -> Responses:
    """Return `responses=` of a route with a JSON response or, on request, server-sent events."""
    return {200: {"model": schema, "content": EVENT_STREAM_CONTENT}}


def install_openapi(app: FastAPI, settings: ServeSettings) -> None:
    """Replace `app.openapi`. The file is built at its first request."""

    def file() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            app.openapi_schema = _complete_schema(made, settings)
        return app.openapi_schema

    app.openapi = file  # type: ignore[method-assign]


def _complete_schema(schema: dict[str, Any], settings: ServeSettings) -> dict[str, Any]:
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    # FastAPI documents 422, which is never sent: validation errors are 400, in the format of the API.
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, operations in schema["paths"].items():
        shape = api_for_path(path)
        _add_schema(schemas, ERROR_SCHEMAS[shape])
        for method, operation in operations.items():
            with_key = bool(settings.keys) and f"{method.upper()} {path}" not in ROUTES_WITHOUT_KEY
            responses = operation["responses"]
            responses.pop("422", None)
            for status, response in error_responses(shape, *COMMON_ERRORS, *(KEY_ERRORS if with_key else ())).items():
                responses.setdefault(str(status), response)
            if stream_content := responses.get("200", {}).get("content", {}).get("text/event-stream"):
                stream_content.pop("schema", None)  # added by FastAPI; a stream has an itemSchema instead
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
