"""LibreTranslate's API: /translate, /translate_file, /detect, /languages and /frontend/settings, with its schemas.

LibreTranslate's optional limits are set: 50 texts, 5,000 characters, 5 alternatives.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fastapi import APIRouter, Request
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import Response

from attendo.serve.http.auth import bearer_token, require_key
from attendo.serve.http.bodies import ResponseModel, request_params
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON, MODEL_ERRORS, MULTIPART, URL_ENCODED, error_responses, request_body
from attendo.serve.language_detection import LanguagePrediction, detect_language
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.translation.documents import LIFETIME_SECONDS, DocumentStore, choose_model, open_form, read_upload
from attendo.serve.translation.formats import find_format, list_formats
from attendo.serve.translation.segmenter import SegmentationOptions
from attendo.serve.translation.translator import translate_from
from attendo.text.languages import language_name, match_language

_FRONTEND_TIMEOUT_MS = 500
_DIGITS = re.compile(r"-?\d+", re.ASCII)


class LibreDetectedLanguage(ResponseModel):
    confidence: float  # from 0 to 100
    language: str


class _CamelCaseModel(ResponseModel):
    """Base of responses with camel-case names: translatedText."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class LibreTranslateResponse(_CamelCaseModel):
    """Translations; each field is a list if `q` is a list. Fields that do not apply to the request are omitted."""

    translated_text: str | list[str]
    detected_language: LibreDetectedLanguage | list[LibreDetectedLanguage] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    faults: list[dict[str, Any]] | list[list[dict[str, Any]]] | None = None  # with `check`
    confidence: float | list[float | None] | None = None


class LibreLanguage(ResponseModel):
    code: str
    name: str
    targets: list[str]


class LibreFileResponse(_CamelCaseModel):
    translated_file_url: str


class LibreLanguageName(ResponseModel):
    code: str
    name: str


class LibreDefaultPair(ResponseModel):
    source: LibreLanguageName
    target: LibreLanguageName


class FrontendSettings(_CamelCaseModel):
    """Settings that LibreTranslate's web page and clients request first."""

    char_limit: int
    frontend_timeout: int  # milliseconds between typing and the request
    api_keys: bool
    key_required: bool
    suggestions: bool
    files_translation: bool
    supported_files_format: list[str]
    language: LibreDefaultPair


Check = Literal["off", "report", "repair"]
_API_KEY_SCHEMA = {"description": "one of the server's keys; what is no text counts as none"}
_TRANSLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["q", "source", "target"],
    "properties": {
        "q": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        },
        "source": {"type": "string", "minLength": 1, "description": "a code that /languages has, or auto"},
        "target": {"type": "string", "minLength": 1},
        "format": {"enum": ["text", "html", "", None], "default": "text"},
        "alternatives": {"type": ["integer", "string", "null"], "default": 0},
        "check": {"enum": ["off", "report", "repair", "", None], "default": "off"},  # not one of LibreTranslate
        "api_key": _API_KEY_SCHEMA,
    },
}
_TRANSLATE_FORM_SCHEMA = {
    **_TRANSLATE_SCHEMA,
    "properties": {**_TRANSLATE_SCHEMA["properties"], "q": {"type": "string", "minLength": 1}},
}
_DETECT_SCHEMA = {
    "type": "object",
    "required": ["q"],
    "properties": {"q": {"type": "string", "minLength": 1}, "api_key": _API_KEY_SCHEMA},
}


# No body is required: all parameters may be in the query string.
TRANSLATE_BODY = request_body(
    {JSON: _TRANSLATE_SCHEMA, URL_ENCODED: _TRANSLATE_FORM_SCHEMA, MULTIPART: _TRANSLATE_FORM_SCHEMA}, required=False
)
DETECT_BODY = request_body(dict.fromkeys((JSON, URL_ENCODED, MULTIPART), _DETECT_SCHEMA), required=False)
DETECT_ERRORS = error_responses(
    "libretranslate", "bad_json", "bad_form", "libre_missing", "libre_no_text", "libre_too_much"
)
TRANSLATE_ERRORS = error_responses(
    "libretranslate",
    *MODEL_ERRORS,
    "bad_form",
    "libre_missing",
    "libre_no_text",
    "libre_no_number",
    "libre_above",
    "libre_too_much",
    "libre_format",
    "libre_check",
    "libre_unsupported",
    "libre_no_pair",
    "no_such_pair",
    "no_language",
    "too_many_sentences",
)

_FILE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["file", "source", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        **{name: _TRANSLATE_SCHEMA["properties"][name] for name in ("source", "target", "api_key")},
    },
}
FILE_BODY = request_body({MULTIPART: _FILE_SCHEMA})
FILE_ERRORS = error_responses(
    "libretranslate",
    *("no_key", "bad_key", "bad_form", "libre_missing", "libre_no_text", "libre_unsupported", "libre_no_pair"),
    *("no_such_pair", "no_language", "unknown_format", "format_needs_package", "unknown_encoding", "not_encoded_so"),
    *("document_damaged", "document_too_large", "document_too_large_unpacked", "too_many_documents", "no_room"),
    "document_failed",
)
DOWNLOAD_RESPONSES: dict[int | str, dict[str, Any]] = {
    **error_responses("libretranslate", "unknown_document", "document_not_ready", "document_failed"),
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
}


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate", response_model=LibreTranslateResponse, responses=TRANSLATE_ERRORS, openapi_extra=TRANSLATE_BODY
    )
    async def translate(request: Request) -> Response:
        """Translate one or several texts, sent as JSON, as a form or in the query string."""
        values = await _read_and_authenticate(gateway, request)
        params = _parse_params(gateway, values)
        return json_response(await _translate(gateway, params))

    @router.post(
        "/detect", response_model=list[LibreDetectedLanguage], responses=DETECT_ERRORS, openapi_extra=DETECT_BODY
    )
    async def find_language(request: Request) -> Response:
        """Detect the language of a text among all served languages, most probable first."""
        text = _require_text(await _read_and_authenticate(gateway, request), "q")
        _check_sizes(gateway, [text])
        found = detect_language(text, list(_language_names(gateway)))
        return json_response(
            [_detection_body(each) for each in found if each.confidence > 0] or [_detection_body(found[0])]
        )

    # No key is required: clients request these to find out whether they need one.
    @router.get("/languages")
    async def languages() -> list[LibreLanguage]:
        """List all languages. Target-only languages are included, because some clients look up their target here."""
        targets = gateway.languages()
        return [
            LibreLanguage(code=each, name=name, targets=targets.get(each, []))
            for each, name in _language_names(gateway).items()
        ]

    @router.get("/frontend/settings")
    async def frontend_settings() -> FrontendSettings:
        return _frontend_settings(gateway)

    router.include_router(_file_and_suggestion_routes(gateway))
    return router


def _file_and_suggestion_routes(gateway: ModelGateway) -> APIRouter:
    """Documents, and suggestions, which are disabled as on a LibreTranslate server without them."""
    router, documents = APIRouter(), DocumentStore(gateway)

    @router.post("/translate_file", response_model=LibreFileResponse, responses=FILE_ERRORS, openapi_extra=FILE_BODY)
    async def translate_file(request: Request) -> Response:
        """Translate a document and return the address of the result, which can be fetched once, for an hour."""
        async with open_form(request) as form:
            values = {name: value for name, value in form.items() if not isinstance(value, UploadFile)}
            key = values.get("api_key")
            require_key(gateway.settings.keys, key if isinstance(key, str) and key else bearer_token(request))
            if not isinstance(file := form.get("file"), UploadFile):
                raise ApiError("libre_missing", name="file")
            kind = find_format(file.filename or "")
            source, target = _resolve_pair(gateway, _require_text(values, "source"), _require_text(values, "target"))
            content = await read_upload(file, gateway)
        document = await documents.add(content, kind, await choose_model(gateway, content, kind, source, target))
        await documents.wait(document, LIFETIME_SECONDS)
        if document.status == "error":
            raise ApiError("document_failed", detail=document.error)
        name = f"{document.document_id}.{document.key}.{kind}"
        return json_response({"translatedFileUrl": str(request.url_for("download_file", name=name))})

    @router.get("/download_file/{name}", response_class=Response, responses=DOWNLOAD_RESPONSES)
    async def download_file(name: str) -> Response:
        """Return a translated document. It is deleted then."""
        document_id, key, *_ = [*name.split("."), ""]
        document = documents.get(document_id, key)
        content = await documents.read_result(document)
        headers = {"content-disposition": f'attachment; filename="translated.{document.document_format}"'}
        cleanup = BackgroundTask(documents.discard, document)
        return Response(content, media_type="application/octet-stream", headers=headers, background=cleanup)

    @router.post("/suggest", status_code=403, responses=error_responses("libretranslate", "libre_no_suggestions"))
    async def suggest() -> None:
        raise ApiError("libre_no_suggestions")

    return router


@dataclass(frozen=True)
class _TranslateParams:
    texts: Sequence[str]
    is_single: bool  # `q` is a string, not a list
    source: str | None  # None: detect it
    target: str
    format: Literal["text", "html"]
    alternatives: int
    check: Check | None


async def _read_and_authenticate(gateway: ModelGateway, request: Request) -> dict[str, Any]:
    """Return the parameters after checking the API key, which may be one of them."""
    values = await request_params(request)
    key = values.get("api_key")
    require_key(gateway.settings.keys, key if isinstance(key, str) and key else bearer_token(request))
    return values


def _parse_params(gateway: ModelGateway, values: dict[str, Any]) -> _TranslateParams:
    query = values.get("q")
    texts = _require_texts(query) if isinstance(query, list) else [_require_text(values, "q")]
    source, target = _require_text(values, "source"), _require_text(values, "target")
    alternatives = _parse_count(values.get("alternatives"), "alternatives", gateway.settings.alternatives)
    _check_sizes(gateway, texts)
    kind = _parse_format(values.get("format") or "text")
    check = _parse_check(values.get("check") or None)
    return _TranslateParams(
        texts, not isinstance(query, list), *_resolve_pair(gateway, source, target), kind, alternatives, check
    )


def _parse_format(value: Any) -> Literal["text", "html"]:
    if value not in ("text", "html"):
        raise ApiError("libre_format", format=str(value)[:40])
    return value


def _parse_check(value: Any) -> Check | None:
    if value not in (None, *get_args(Check)):
        raise ApiError("libre_check", check=str(value)[:40])
    return value


def _require_text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None or value == "":
        raise ApiError("libre_missing", name=name)
    if not isinstance(value, str):
        raise ApiError("libre_no_text", name=name)
    return value


def _require_texts(values: list[Any]) -> list[str]:
    if not values:
        raise ApiError("libre_missing", name="q")
    if not all(isinstance(each, str) for each in values):
        raise ApiError("libre_no_text", name="q")
    return values


def _parse_count(value: Any, name: str, max_value: int) -> int:
    """Parse an integer up to `max_value`. Forms send it as a string."""
    if value is None or value == "":
        return 0
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value)  # float accepts any number of digits, int() does not
    is_integer = isinstance(value, int) or (isinstance(value, float) and (value.is_integer() or math.isinf(value)))
    if isinstance(value, bool) or not is_integer:
        raise ApiError("libre_no_number", name=name)
    if value > max_value:
        raise ApiError("libre_above", name=name, most=max_value)
    return int(max(0, value))


def _check_sizes(gateway: ModelGateway, texts: Sequence[str]) -> None:
    sizes = [
        (len(texts), gateway.settings.max_texts),
        *((len(text), gateway.settings.max_characters) for text in texts),
    ]
    for size, most in sizes:
        if size > most:
            raise ApiError("libre_too_much", size=size, most=most)


def _resolve_pair(gateway: ModelGateway, source: str, target: str) -> tuple[str | None, str]:
    """Return the codes of a pair that a model translates. The source is None if it has to be detected."""
    served = gateway.languages()
    automatic = source.strip().lower() == "auto"
    source_code = None if automatic else match_language(source, served)
    if source_code is None and not automatic:
        source_code = _resolve_language(gateway, source)
    among = served.get(source_code, ()) if source_code else [each for targets in served.values() for each in targets]
    target_code = match_language(target, among)
    if target_code is None:
        other = _resolve_language(gateway, target)
        shown_source = source_code or next(iter(served))
        raise ApiError(
            "libre_no_pair",
            target=other,
            target_name=language_name(other),
            source=shown_source,
            source_name=language_name(shown_source),
        )
    return source_code, target_code


def _resolve_language(gateway: ModelGateway, tag: str) -> str:
    """Return the served code for a tag, as source or target."""
    code = match_language(tag, _language_names(gateway))
    if code is None:
        raise ApiError("libre_unsupported", language=tag[:40])
    return code


def _language_names(gateway: ModelGateway) -> dict[str, str]:
    """Return the names of all served languages by code, source languages first."""
    served = gateway.languages()
    codes = [*served, *(target for targets in served.values() for target in targets)]
    return {code: language_name(code) for code in dict.fromkeys(codes)}


async def _translate(gateway: ModelGateway, params: _TranslateParams) -> dict[str, Any]:
    """Return the response: lists if `q` is a list, and only the requested fields."""
    how = SegmentationOptions(params.format)
    options: dict[str, Any] = {} if params.check is None else {"check": params.check}
    translations, sources = await translate_from(
        gateway, params.source, params.target, params.texts, how, params.alternatives, **options
    )
    fields: dict[str, Sequence[Any]] = {"translatedText": [each.text for each in translations]}
    if params.source is None:
        fields["detectedLanguage"] = [_detection_body(each) for each in sources]
    if params.alternatives:
        fields["alternatives"] = [each.alternatives for each in translations]
    if params.check not in (None, "off"):
        fields["faults"] = [each.list_faults() for each in translations]
        fields["confidence"] = [each.confidence for each in translations]
    return {name: each[0] if params.is_single else each for name, each in fields.items()}


def _detection_body(detection: LanguagePrediction) -> dict[str, Any]:
    return {"confidence": round(100 * detection.confidence, 1), "language": detection.language}


def _frontend_settings(gateway: ModelGateway) -> FrontendSettings:
    target = next((target for _, target in gateway.pairs()), "en")
    return FrontendSettings(
        char_limit=gateway.settings.max_characters,
        frontend_timeout=_FRONTEND_TIMEOUT_MS,
        api_keys=bool(gateway.settings.keys),
        key_required=bool(gateway.settings.keys),
        suggestions=False,
        files_translation=True,
        supported_files_format=[f".{ending}" for ending in list_formats()],
        language=LibreDefaultPair(
            source=LibreLanguageName(code="auto", name="Auto Detect"),
            target=LibreLanguageName(code=target, name=language_name(target)),
        ),
    )
