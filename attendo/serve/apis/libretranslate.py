"""LibreTranslate's API: /translate, /detect, /languages and /frontend/settings, with its schemas.

Limits that LibreTranslate leaves open are set: 50 texts, 5,000 characters, 5 alternatives.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from attendo.serve.http.auth import admitted, bearer
from attendo.serve.http.bodies import Told, values_of
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import OF_MODELS, refusals
from attendo.serve.language_detection import Detected, detect
from attendo.serve.languages import closest, name_of
from attendo.serve.scheduling.gateway import Office
from attendo.serve.translation.segmenter import Reading
from attendo.serve.translation.translator import Translation, found_sources, translated_from

_PAGE_MILLISECONDS = 500
_DIGITS = re.compile(r"-?\d+", re.ASCII)


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


def routes(office: Office) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate", response_model=TranslateReply, responses=REFUSED_TRANSLATION, openapi_extra=TRANSLATE_BODY
    )
    async def translate(request: Request) -> Response:
        """A text, or several, as JSON, as a form, or in the address."""
        values = await _admitted(office, request)
        asked = _asked(office, values)
        return answer(_told(asked, *await _translations(office, asked)))

    @router.post(
        "/detect", response_model=list[DetectedLanguage], responses=REFUSED_DETECTION, openapi_extra=DETECT_BODY
    )
    async def find_language(request: Request) -> Response:
        """The language of a text, among all that are served, the likeliest first."""
        text = _text(await _admitted(office, request), "q")
        _check_sizes(office, [text])
        found = detect(text, list(_names(office)))
        return answer([_detected(each) for each in found if each.confidence > 0] or [_detected(found[0])])

    # Clients ask for these without a key, to learn whether they need one.
    @router.get("/languages")
    async def languages() -> list[LanguageReply]:
        """Those that are only translated into are listed too: some clients look for their target here."""
        targets = office.languages()
        return [
            LanguageReply(code=each, name=name, targets=targets.get(each, [])) for each, name in _names(office).items()
        ]

    @router.get("/frontend/settings")
    async def frontend_settings() -> FrontendSettings:
        return _frontend(office)

    router.include_router(_left_out())
    return router


def _left_out() -> APIRouter:
    """What is switched off here, as it may be in any LibreTranslate."""
    router = APIRouter()

    @router.post("/suggest", status_code=403, responses=refusals("libretranslate", "libre_no_suggestions"))
    async def suggest() -> None:
        raise Refusal("libre_no_suggestions")

    @router.post("/translate_file", status_code=403, responses=refusals("libretranslate", "libre_no_files"))
    async def translate_file() -> None:
        raise Refusal("libre_no_files")

    @router.get("/download_file/{name}", status_code=403, responses=refusals("libretranslate", "libre_no_files"))
    async def download_file(name: str) -> None:
        raise Refusal("libre_no_files")

    return router


@dataclass(frozen=True)
class _Asked:
    texts: Sequence[str]
    one: bool  # it was given as a text, not as a list
    source: str | None  # to be detected where there is none
    target: str
    kind: Literal["text", "html"]
    alternatives: int


async def _admitted(office: Office, request: Request) -> dict[str, Any]:
    """What is given, once the key is found good; it may be among the rest."""
    values = await values_of(request)
    key = values.get("api_key")
    admitted(office, key if isinstance(key, str) and key else bearer(request))
    return values


def _asked(office: Office, values: dict[str, Any]) -> _Asked:
    given = values.get("q")
    texts = _texts(given) if isinstance(given, list) else [_text(values, "q")]
    source, target = _text(values, "source"), _text(values, "target")
    alternatives = _number(values.get("alternatives"), "alternatives", office.settings.alternatives)
    _check_sizes(office, texts)
    kind = _kind(values.get("format") or "text")
    return _Asked(texts, not isinstance(given, list), *_pair(office, source, target), kind, alternatives)


def _kind(given: Any) -> Literal["text", "html"]:
    if given == "text" or given == "html":
        return "html" if given == "html" else "text"
    raise Refusal("libre_format", format=str(given)[:40])


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None or value == "":
        raise Refusal("libre_missing", name=name)
    if not isinstance(value, str):
        raise Refusal("libre_no_text", name=name)
    return value


def _texts(given: list[Any]) -> list[str]:
    if not given:
        raise Refusal("libre_missing", name="q")
    if not all(isinstance(each, str) for each in given):
        raise Refusal("libre_no_text", name="q")
    return given


def _number(value: Any, name: str, most: int) -> int:
    """Forms have it as text."""
    if value is None or value == "":
        return 0
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value)  # which no number of digits is too many for
    whole = isinstance(value, int) or (isinstance(value, float) and (value.is_integer() or math.isinf(value)))
    if isinstance(value, bool) or not whole:
        raise Refusal("libre_no_number", name=name)
    if value > most:
        raise Refusal("libre_above", name=name, most=most)
    return int(max(0, value))


def _check_sizes(office: Office, texts: Sequence[str]) -> None:
    sizes = [(len(texts), office.settings.texts), *((len(text), office.settings.characters) for text in texts)]
    for size, most in sizes:
        if size > most:
            raise Refusal("libre_too_much", size=size, most=most)


def _pair(office: Office, source: str, target: str) -> tuple[str | None, str]:
    """Codes of languages that are served, with a model for both; None for a source that is to be detected."""
    served = office.languages()
    automatic = source.strip().lower() == "auto"
    source_code = None if automatic else closest(source, served)
    if source_code is None and not automatic:
        source_code = _known(office, source)
    among = served.get(source_code, ()) if source_code else [each for targets in served.values() for each in targets]
    target_code = closest(target, among)
    if target_code is None:
        other = _known(office, target)
        begun = source_code or next(iter(served))
        raise Refusal(
            "libre_no_pair", target=other, target_name=name_of(other), source=begun, source_name=name_of(begun)
        )
    return source_code, target_code


def _known(office: Office, tag: str) -> str:
    """The code of a language that is served at all."""
    code = closest(tag, _names(office))
    if code is None:
        raise Refusal("libre_unsupported", language=tag[:40])
    return code


def _names(office: Office) -> dict[str, str]:
    """All languages that are served, those first that are translated from."""
    served = office.languages()
    codes = [*served, *(target for targets in served.values() for target in targets)]
    return {code: name_of(code) for code in dict.fromkeys(codes)}


async def _translations(office: Office, asked: _Asked) -> tuple[list[Translation], list[Detected]]:
    """Of each text, and where the source is to be detected its language."""
    found: list[Detected] = []
    sources = [asked.source or ""] * len(asked.texts)
    if asked.source is None:
        found = await found_sources(office, asked.texts, asked.target, asked.kind)
        sources = [each.language for each in found]
    how = Reading(asked.kind)
    return await translated_from(office, sources, asked.target, asked.texts, how, asked.alternatives), found


def _told(asked: _Asked, found: Sequence[Translation], detected: Sequence[Detected]) -> dict[str, Any]:
    """A list for a list; and only what was asked for."""
    told: dict[str, Sequence[Any]] = {"translatedText": [each.text for each in found]}
    if detected:
        told["detectedLanguage"] = [_detected(each) for each in detected]
    if asked.alternatives:
        told["alternatives"] = [each.alternatives for each in found]
    return {name: each[0] if asked.one else each for name, each in told.items()}


def _detected(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}


def _frontend(office: Office) -> FrontendSettings:
    pairs = office.pairs()
    target = pairs[0][1] if pairs else "en"
    chosen = Chosen(
        source=CodeAndName(code="auto", name="Auto Detect"), target=CodeAndName(code=target, name=name_of(target))
    )
    return FrontendSettings(
        char_limit=office.settings.characters,
        frontend_timeout=_PAGE_MILLISECONDS,
        api_keys=bool(office.settings.keys),
        key_required=bool(office.settings.keys),
        suggestions=False,
        files_translation=False,
        supported_files_format=[],
        language=chosen,
    )
