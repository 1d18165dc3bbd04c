"""Request and response schemas of DeepL's API, and parsing of its JSON and form bodies."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from attendo.serve.http import bodies
from attendo.serve.http.bodies import is_json, json_object
from attendo.serve.http.errors import Refusal
from attendo.serve.http.openapi import OF_MODELS, refusals
from attendo.serve.translation.documents import no_room
from attendo.serve.translation.segmenter import Reading, Split
from attendo.text.markup import Outline

R = TypeVar("R", bound=BaseModel)
Word = Annotated[str, Field(min_length=1, max_length=50)]
Words = Annotated[str, Field(max_length=5_000)] | Annotated[list[Word], Field(max_length=100)]
_LISTS = ("text", "ignore_tags", "splitting_tags", "non_splitting_tags")
_SPLITS: dict[str, Split] = {"0": "never", "nonewlines": "signs"}
# What cannot be done here and would be missed.
_UNMET = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")


class _Asked(BaseModel):
    """What is not known here is passed over."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    target_lang: Word
    source_lang: Word | None = None
    # No model here knows forms of address; whoever only prefers one can do without.
    formality: Literal["default", "prefer_less", "prefer_more"] | None = None

    def check_met(self) -> None:
        for name in _UNMET:
            if (self.model_extra or {}).get(name):
                raise Refusal("unmet_parameter", {"param": name}, name=name)


class TranslateRequest(_Asked):
    """Any `context` is accepted, though no model here reads it."""

    text: str | list[str]
    tag_handling: Literal["html", "xml"] | None = None
    ignore_tags: Words = Field(default=[], description="a list, or one text with commas")
    splitting_tags: Words = []
    non_splitting_tags: Words = []
    outline_detection: bool | None = Field(None, description="of XML: what divides it is seen from where it stands")
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] | None = None
    model_type: Word | None = None

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def reading(self) -> Reading:
        dividing, joining = (frozenset(_names(each)) for each in (self.splitting_tags, self.non_splitting_tags))
        found_out = self.tag_handling != "xml" or self.outline_detection is not False
        outline = Outline(dividing, joining - dividing, found_out)
        split = _SPLITS.get(str(self.split_sentences), "lines")
        return Reading(self.tag_handling or "text", _names(self.ignore_tags), split, outline)


class DocumentRequest(_Asked):
    filename: Annotated[str, Field(max_length=500)] | None = None
    output_format: Word | None = None


class KeyRequest(BaseModel):
    document_key: Annotated[str, Field(max_length=500)]


async def asked(request: Request, kind: type[R]) -> R:
    """The body of a request, JSON or a form."""
    if is_json(request):
        return fitting(kind, await json_object(request))
    async with form_of(request) as form:
        return fitting(kind, fields_of(form))


def fitting(kind: type[R], fields: Mapping[str, Any]) -> R:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


@asynccontextmanager
async def form_of(request: Request) -> AsyncIterator[FormData]:
    """A file in it may lie on disk for as long as this lasts."""
    try:
        form = await bodies.form_of(request, files=1)
    except OSError as error:
        raise no_room(error) from None
    try:
        yield form
    finally:
        await form.close()


def fields_of(form: FormData) -> dict[str, Any]:
    """What may be given several times as lists; of all else the first."""
    given = {name: [each for each in form.getlist(name) if not isinstance(each, UploadFile)] for name in form}
    return {name: values if name in _LISTS else values[0] for name, values in given.items() if values}


def _names(given: str | list[str]) -> list[str]:
    """Of tags: a list, or one text with commas."""
    listed = [given] if isinstance(given, str) else given
    return [tag.strip() for each in listed for tag in each.split(",") if tag.strip()]


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
