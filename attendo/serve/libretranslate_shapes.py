"""What LibreTranslate's API is asked and answers with, as its description tells it."""

from typing import Any

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from attendo.serve.fields import Told
from attendo.serve.openapi import OF_MODELS, refusals


class DetectedLanguage(Told):
    confidence: float  # from 0 to 100
    language: str


class _Camel(Told):
    """Names of two words are written as LibreTranslate does it: translatedText."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class TranslateReply(_Camel):
    """Lists where `q` is one. The language is told where it was detected, alternatives where any were asked for."""

    translated_text: str | list[str]
    detected_language: DetectedLanguage | list[DetectedLanguage] | None = None
    alternatives: list[str] | list[list[str]] | None = None


class LanguageReply(Told):
    code: str
    name: str
    targets: list[str]


class CodeAndName(Told):
    code: str
    name: str


class Chosen(Told):
    source: CodeAndName
    target: CodeAndName


class FrontendSettings(_Camel):
    """What LibreTranslate's own page, and clients of it, ask first."""

    char_limit: int
    frontend_timeout: int  # milliseconds after which it asks while somebody types
    api_keys: bool
    key_required: bool
    suggestions: bool
    files_translation: bool
    supported_files_format: list[str]
    language: Chosen


_KEY = {"description": "one of the server's keys; what is no text counts as none"}
_ASKED: dict[str, Any] = {
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
        "api_key": _KEY,
    },
}
_ASKED_AS_FORM = {**_ASKED, "properties": {**_ASKED["properties"], "q": {"type": "string", "minLength": 1}}}
_DETECTED = {
    "type": "object",
    "required": ["q"],
    "properties": {"q": {"type": "string", "minLength": 1}, "api_key": _KEY},
}


def _body(as_json: dict[str, Any], as_form: dict[str, Any]) -> dict[str, Any]:
    forms = {kind: {"schema": as_form} for kind in ("application/x-www-form-urlencoded", "multipart/form-data")}
    return {"requestBody": {"content": {"application/json": {"schema": as_json}, **forms}}}


TRANSLATE_BODY = _body(_ASKED, _ASKED_AS_FORM)
DETECT_BODY = _body(_DETECTED, _DETECTED)
REFUSED_DETECTION = refusals(
    "libretranslate", "bad_json", "bad_form", "libre_missing", "libre_no_text", "libre_too_much"
)
REFUSED_TRANSLATION = refusals(
    "libretranslate",
    *OF_MODELS,
    "bad_form",
    "libre_missing",
    "libre_no_text",
    "libre_no_number",
    "libre_above",
    "libre_too_much",
    "libre_format",
    "libre_unsupported",
    "libre_no_pair",
    "no_such_pair",
    "no_language",
    "too_many_sentences",
)
