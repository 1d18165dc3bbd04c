"""What is answered, in DeepL's shapes, and what may be refused."""

from typing import Any, Literal

from pydantic import BaseModel

from attendo.serve.deepl.requests import DocumentRequest, KeyRequest, TranslateRequest
from attendo.serve.openapi import OF_MODELS, refusals


class TranslationReply(BaseModel):
    """`billed_characters` always: clients take it for a number. The model is told where its type was asked for."""

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None


class TranslateReply(BaseModel):
    translations: list[TranslationReply]


class LanguageReply(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None  # told of targets


class UsageReply(BaseModel):
    character_count: int
    character_limit: int


class DocumentReply(BaseModel):
    document_id: str
    document_key: str


class StatusReply(BaseModel):
    document_id: str
    status: Literal["queued", "translating", "done", "error"]
    billed_characters: int | None = None
    error_message: str | None = None


class GlossaryPairsReply(BaseModel):
    supported_languages: list[str] = []


class GlossariesReply(BaseModel):
    glossaries: list[str] = []


_LANGUAGES = ("unknown_language", "no_such_pair", "no_language", "unmet_parameter", "bad_form")
TRANSLATE_REFUSALS = refusals("deepl", *OF_MODELS, *_LANGUAGES, "too_many_texts", "too_many_sentences")
UPLOAD_REFUSALS = refusals(
    "deepl",
    *_LANGUAGES,
    *("bad_json", "bad_request", "bad_setting", "no_file", "unknown_format", "other_format", "unknown_encoding"),
    *("not_encoded_so", "document_too_large", "too_many_documents", "no_room"),
)
STATUS_REFUSALS = refusals("deepl", "bad_json", "bad_request", "bad_form", "unknown_document")
RESULT_REFUSALS = refusals(
    "deepl", "bad_json", "bad_request", "bad_form", "unknown_document", "document_failed", "document_not_ready"
)


def _body(*kinds: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


_FORM, _PARTS, _JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_DOCUMENT: dict[str, Any] = DocumentRequest.model_json_schema()
_FILE = {"file": {"type": "string", "format": "binary"}}
TYPE_PARAMETER = {
    "parameters": [
        {
            "name": "type",
            "in": "query",
            "required": False,
            "schema": {"enum": ["source", "target"], "default": "source"},
        }
    ]
}
TRANSLATE_BODY = _body(_JSON, _FORM, schema=TranslateRequest.model_json_schema())
KEY_BODY = _body(_JSON, _FORM, schema=KeyRequest.model_json_schema())
DOCUMENT_BODY = _body(
    _PARTS,
    schema={
        **_DOCUMENT,
        "properties": {**_DOCUMENT["properties"], **_FILE},
        "required": [*_DOCUMENT["required"], *_FILE],
    },
)
