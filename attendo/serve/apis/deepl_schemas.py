"""Request and response schemas of DeepL's API, and parsing of its JSON and form bodies."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from attendo.serve.http import bodies
from attendo.serve.http.bodies import is_json, read_json_object
from attendo.serve.http.errors import ApiError
from attendo.serve.http.openapi import MODEL_ERRORS, error_responses
from attendo.serve.translation.documents import disk_error
from attendo.serve.translation.segmenter import SegmentationOptions, SplitRule
from attendo.text.markup import TagRules

R = TypeVar("R", bound=BaseModel)
ShortText = Annotated[str, Field(min_length=1, max_length=50)]
TagList = Annotated[str, Field(max_length=5_000)] | Annotated[list[ShortText], Field(max_length=100)]
_LIST_FIELDS = ("text", "ignore_tags", "splitting_tags", "non_splitting_tags")
_SPLIT_MODES: dict[str, SplitRule] = {"0": "never", "nonewlines": "signs"}
# Unsupported parameters. They are rejected, because clients rely on their effect.
_UNSUPPORTED = ("glossary_id", "glossary_ids", "style_id", "translation_memory_id", "custom_instructions")


class _DeepLRequest(BaseModel):
    """Fields of all translation requests. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    target_lang: ShortText
    source_lang: ShortText | None = None
    # No model supports formality. The `prefer_` values are preferences, so they are accepted and ignored.
    formality: Literal["default", "prefer_less", "prefer_more"] | None = None

    def check_supported(self) -> None:
        for name in _UNSUPPORTED:
            if (self.model_extra or {}).get(name):
                raise ApiError("unmet_parameter", {"param": name}, name=name)


class DeepLTranslateRequest(_DeepLRequest):
    """Request to translate texts. `context` is accepted and ignored."""

    text: str | list[str]
    tag_handling: Literal["html", "xml"] | None = None
    ignore_tags: TagList = Field(default=[], description="a list, or one comma-separated string")
    splitting_tags: TagList = []
    non_splitting_tags: TagList = []
    outline_detection: bool | None = Field(None, description="XML only: detect which tags split sentences")
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] | None = None
    model_type: ShortText | None = None

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def segmentation_options(self) -> SegmentationOptions:
        dividing, joining = (frozenset(_tag_names(each)) for each in (self.splitting_tags, self.non_splitting_tags))
        found_out = self.tag_handling != "xml" or self.outline_detection is not False
        outline = TagRules(dividing, joining - dividing, found_out)
        split = _SPLIT_MODES.get(str(self.split_sentences), "lines")
        return SegmentationOptions(self.tag_handling or "text", _tag_names(self.ignore_tags), split, outline)


class DocumentRequest(_DeepLRequest):
    filename: Annotated[str, Field(max_length=500)] | None = None
    output_format: ShortText | None = None


class DocumentKeyRequest(BaseModel):
    document_key: Annotated[str, Field(max_length=500)]


async def read_body(request: Request, schema: type[R]) -> R:
    """Parse the body of a request, JSON or a form."""
    if is_json(request):
        return validate_fields(schema, await read_json_object(request))
    async with open_form(request) as form:
        return validate_fields(schema, form_fields(form))


def validate_fields(schema: type[R], fields: Mapping[str, Any]) -> R:
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


@asynccontextmanager
async def open_form(request: Request) -> AsyncIterator[FormData]:
    """Open the form of a request. Uploaded files may be on disk until the context exits."""
    try:
        form = await bodies.parse_form(request, max_files=1)
    except OSError as error:
        raise disk_error(error) from None
    try:
        yield form
    finally:
        await form.close()


def form_fields(form: FormData) -> dict[str, Any]:
    """Return the list fields as lists, and the first value of every other field."""
    fields = {name: [each for each in form.getlist(name) if not isinstance(each, UploadFile)] for name in form}
    return {name: values if name in _LIST_FIELDS else values[0] for name, values in fields.items() if values}


def _tag_names(value: str | list[str]) -> list[str]:
    """Return tag names from a list or from one comma-separated string."""
    listed = [value] if isinstance(value, str) else value
    return [tag.strip() for each in listed for tag in each.split(",") if tag.strip()]


class DeepLTranslation(BaseModel):
    """A translation. Clients require `billed_characters`. `model_type_used` is set if the request has `model_type`."""

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None


class DeepLTranslateResponse(BaseModel):
    translations: list[DeepLTranslation]


class DeepLLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None  # target languages only


class DeepLUsageResponse(BaseModel):
    character_count: int
    character_limit: int


class DocumentResponse(BaseModel):
    document_id: str
    document_key: str


class DocumentStatusResponse(BaseModel):
    document_id: str
    status: Literal["queued", "translating", "done", "error"]
    billed_characters: int | None = None
    error_message: str | None = None


class GlossaryPairsResponse(BaseModel):
    supported_languages: list[str] = []


class GlossariesResponse(BaseModel):
    glossaries: list[str] = []


_LANGUAGE_ERRORS = ("unknown_language", "no_such_pair", "no_language", "unmet_parameter", "bad_form")
TRANSLATE_ERRORS = error_responses("deepl", *MODEL_ERRORS, *_LANGUAGE_ERRORS, "too_many_texts", "too_many_sentences")
UPLOAD_ERRORS = error_responses(
    "deepl",
    *_LANGUAGE_ERRORS,
    *("bad_json", "bad_request", "bad_setting", "no_file", "unknown_format", "other_format", "unknown_encoding"),
    *("not_encoded_so", "document_too_large", "too_many_documents", "no_room"),
)
STATUS_ERRORS = error_responses("deepl", "bad_json", "bad_request", "bad_form", "unknown_document")
RESULT_ERRORS = error_responses(
    "deepl", "bad_json", "bad_request", "bad_form", "unknown_document", "document_failed", "document_not_ready"
)


def _request_body(*media_types: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in media_types}}}


_FORM, _MULTIPART, _JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_DOCUMENT_SCHEMA: dict[str, Any] = DocumentRequest.model_json_schema()
_FILE_SCHEMA = {"file": {"type": "string", "format": "binary"}}
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
TRANSLATE_BODY = _request_body(_JSON, _FORM, schema=DeepLTranslateRequest.model_json_schema())
KEY_BODY = _request_body(_JSON, _FORM, schema=DocumentKeyRequest.model_json_schema())
DOCUMENT_BODY = _request_body(
    _MULTIPART,
    schema={
        **_DOCUMENT_SCHEMA,
        "properties": {**_DOCUMENT_SCHEMA["properties"], **_FILE_SCHEMA},
        "required": [*_DOCUMENT_SCHEMA["required"], *_FILE_SCHEMA],
    },
)
