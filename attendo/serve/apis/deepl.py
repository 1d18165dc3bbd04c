"""DeepL's API, version 2: texts, documents, languages and usage."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.background import BackgroundTask
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from attendo.serve.http.auth import key_dependency
from attendo.serve.http.bodies import is_json, read_json_object, request_params
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON, MODEL_ERRORS, MULTIPART, URL_ENCODED, error_responses, request_body
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.translation.documents import DocumentStore, choose_model, open_form, read_upload
from attendo.serve.translation.formats import find_format
from attendo.serve.translation.glossaries import GlossaryStore
from attendo.serve.translation.segmenter import SegmentationOptions, SplitRule
from attendo.serve.translation.translator import translate_from
from attendo.text.languages import language_name, match_language
from attendo.text.markup import TagRules
from attendo.text_model import Glossary

_NO_LIMIT = 1_000_000_000_000  # DeepL's value for accounts without a limit
_OCTET_STREAM = "application/octet-stream"
# DeepL's library polls at once and then every 5 seconds. Most documents are finished before the second poll.
_STATUS_WAIT_SECONDS = 3.0
# Clients reject these targets without a region. All regions of a language use the same model.
_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_DEEPL_CODES = {"zt": "ZH-HANT", "no": "NB"}
R = TypeVar("R", bound=BaseModel)
ShortText = Annotated[str, Field(min_length=1, max_length=50)]
TagList = Annotated[str, Field(max_length=5_000)] | Annotated[list[ShortText], Field(max_length=100)]
_LIST_FIELDS = ("text", "ignore_tags", "splitting_tags", "non_splitting_tags")
_SPLIT_MODES: dict[str, SplitRule] = {"0": "never", "nonewlines": "signs"}
# Unsupported parameters. They are rejected, because clients rely on their effect.
_UNSUPPORTED = ("glossary_ids", "style_id", "translation_memory_id", "custom_instructions")


class _DeepLRequest(BaseModel):
    """Fields of all translation requests. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    target_lang: ShortText
    source_lang: ShortText | None = None
    # No model supports formality. The `prefer_` values are preferences, so they are accepted and ignored.
    formality: Literal["default", "prefer_less", "prefer_more"] | None = None
    glossary_id: ShortText | None = Field(None, description="needs source_lang")

    def check_supported(self) -> None:
        for name in _UNSUPPORTED:
            if (self.model_extra or {}).get(name):
                raise ApiError("unmet_parameter", {"param": name}, name=name)


class DeepLTranslateRequest(_DeepLRequest):
    """Request to translate texts. `context` is accepted and ignored. `check` is not a parameter of DeepL."""

    text: str | list[str]
    tag_handling: Literal["html", "xml"] | None = None
    ignore_tags: TagList = Field(default=[], description="a list, or one comma-separated string")
    splitting_tags: TagList = []
    non_splitting_tags: TagList = []
    outline_detection: bool | None = Field(None, description="XML only: detect which tags split sentences")
    split_sentences: Literal["0", "1", "nonewlines", 0, 1] | None = None
    model_type: ShortText | None = None
    check: Literal["off", "report", "repair"] | None = Field(None, description="report faults, or also repair them")

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


def form_fields(form: FormData) -> dict[str, Any]:
    """Return the list fields as lists, and the first value of every other field."""
    fields = {name: [each for each in form.getlist(name) if not isinstance(each, UploadFile)] for name in form}
    return {name: values if name in _LIST_FIELDS else values[0] for name, values in fields.items() if values}


def _tag_names(value: str | list[str]) -> list[str]:
    """Return tag names from a list or from one comma-separated string."""
    listed = [value] if isinstance(value, str) else value
    return [tag.strip() for each in listed for tag in each.split(",") if tag.strip()]


class DeepLTranslation(BaseModel):
    """A translation. Clients require `billed_characters`. `model_type_used` is set if the request has `model_type`.

    `faults` and `confidence` are set if the request has `check`. DeepL's client ignores them.
    """

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None
    faults: list[dict[str, Any]] | None = None
    confidence: float | None = None


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


_LANGUAGE_ERRORS = ("unknown_language", "no_such_pair", "no_language", "unmet_parameter", "bad_form")
_GLOSSARY_ERRORS = ("unknown_glossary", "glossary_pair_missing", "glossary_without_source")
TRANSLATE_ERRORS = error_responses(
    "deepl", *MODEL_ERRORS, *_LANGUAGE_ERRORS, *_GLOSSARY_ERRORS, "too_many_texts", "too_many_sentences"
)
UPLOAD_ERRORS = error_responses(
    "deepl",
    *_LANGUAGE_ERRORS,
    *_GLOSSARY_ERRORS,
    *("bad_json", "bad_request", "bad_setting", "no_file", "unknown_format", "other_format", "unknown_encoding"),
    *("format_needs_package", "document_damaged", "document_too_large_unpacked"),
    *("not_encoded_so", "document_too_large", "too_many_documents", "no_room"),
)
STATUS_ERRORS = error_responses("deepl", "bad_json", "bad_request", "bad_form", "unknown_document")
RESULT_ERRORS = error_responses(
    "deepl", "bad_json", "bad_request", "bad_form", "unknown_document", "document_failed", "document_not_ready"
)


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
TRANSLATE_BODY = request_body(dict.fromkeys((JSON, URL_ENCODED), DeepLTranslateRequest.model_json_schema()))
KEY_BODY = request_body(dict.fromkeys((JSON, URL_ENCODED), DocumentKeyRequest.model_json_schema()))
_UPLOAD_SCHEMA = {
    **_DOCUMENT_SCHEMA,
    "properties": {**_DOCUMENT_SCHEMA["properties"], **_FILE_SCHEMA},
    "required": [*_DOCUMENT_SCHEMA["required"], *_FILE_SCHEMA],
}
DOCUMENT_BODY = request_body({MULTIPART: _UPLOAD_SCHEMA})


def routes(gateway: ModelGateway, glossaries: GlossaryStore) -> APIRouter:
    router = APIRouter(prefix="/v2", dependencies=[key_dependency(gateway.settings.keys)], tags=["DeepL"])
    documents, texts = DocumentStore(gateway), _TextTranslator(gateway, glossaries)
    router.include_router(_document_routes(gateway, documents, glossaries))

    @router.post(
        "/translate", response_model=DeepLTranslateResponse, responses=TRANSLATE_ERRORS, openapi_extra=TRANSLATE_BODY
    )
    async def translate(request: Request) -> Response:
        """Translate texts, sent as JSON or as a form."""
        return json_response(await texts.translate(await read_body(request, DeepLTranslateRequest)))

    @router.get(
        "/languages",
        response_model=list[DeepLLanguage],
        responses=error_responses("deepl", "bad_type", "bad_form", "bad_json"),
        openapi_extra=TYPE_PARAMETER,
    )
    async def languages(request: Request) -> Response:
        """List the source or target languages. DeepL's library sends `type` as a form in the body of a GET."""
        kind = (await request_params(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise ApiError("bad_type", kind=str(kind)[:40])
        listed = source_languages(gateway) if kind == "source" else target_languages(gateway)
        return json_response([each.model_dump(exclude_none=True) for each in listed])

    @router.get("/usage")
    async def usage() -> DeepLUsageResponse:
        """Return the characters translated for all clients since the server started."""
        return DeepLUsageResponse(character_count=texts.characters + documents.characters, character_limit=_NO_LIMIT)

    return router


class _TextTranslator:
    """Translates texts, each from its own language, and counts their characters."""

    def __init__(self, gateway: ModelGateway, glossaries: GlossaryStore) -> None:
        self._gateway, self._glossaries = gateway, glossaries
        self.characters = 0

    async def translate(self, request: DeepLTranslateRequest) -> dict[str, Any]:
        request.check_supported()
        texts = request.texts
        self._gateway.check_texts(texts)
        source, target = resolve_pair(self._gateway, request.source_lang, request.target_lang)
        if source == target:
            raise ApiError("no_such_pair", source=source, target=target)
        glossary = get_glossary(self._glossaries, request.glossary_id, source, target)
        options: dict[str, Any] = {} if glossary is None else {"glossary": glossary}
        checks = request.check not in (None, "off")
        if request.check is not None:
            options["check"] = request.check
        translations, sources = await translate_from(
            self._gateway, source, target, texts, request.segmentation_options, **options
        )
        self.characters += sum(map(len, texts))
        responses = [
            DeepLTranslation(
                detected_source_language=to_deepl_code(language),
                text=each.text,
                billed_characters=len(text),
                model_type_used=self._model_name(language, target) if request.model_type else None,
                faults=each.list_faults() if checks else None,
                confidence=each.confidence if checks else None,
            )
            for text, (language, _), each in zip(texts, sources, translations, strict=True)
        ]
        return {"translations": [each.model_dump(exclude_none=True) for each in responses]}

    def _model_name(self, source: str, target: str) -> str | None:
        """Return the name of the model for a pair, or None if the text is already in the target language."""
        return None if source == target else self._gateway.get_model_for_pair(source, target).name


def _document_routes(gateway: ModelGateway, documents: DocumentStore, glossaries: GlossaryStore) -> APIRouter:
    router = APIRouter(prefix="/document")

    @router.post("", response_model=DocumentResponse, responses=UPLOAD_ERRORS, openapi_extra=DOCUMENT_BODY)
    async def upload(request: Request) -> Response:
        document = await documents.add(*await _read_upload(request, gateway, glossaries))
        return json_response(DocumentResponse(document_id=document.document_id, document_key=document.key))

    @router.post(
        "/{document_id}", response_model=DocumentStatusResponse, responses=STATUS_ERRORS, openapi_extra=KEY_BODY
    )
    async def status(document_id: str, request: Request) -> Response:
        document = documents.get(document_id, (await read_body(request, DocumentKeyRequest)).document_key)
        await documents.wait(document, _STATUS_WAIT_SECONDS)
        billed = document.characters if document.status == "done" else None
        response = DocumentStatusResponse(
            document_id=document_id, status=document.status, billed_characters=billed, error_message=document.error
        )
        return json_response(response.model_dump(exclude_none=True))

    @router.post(
        "/{document_id}/result",
        response_class=Response,
        responses={
            **RESULT_ERRORS,
            200: {"content": {_OCTET_STREAM: {"schema": {"type": "string", "format": "binary"}}}},
        },
        openapi_extra=KEY_BODY,
    )
    async def result(document_id: str, request: Request) -> Response:
        document = documents.get(document_id, (await read_body(request, DocumentKeyRequest)).document_key)
        content = await documents.read_result(document)
        # Sent as an attachment, so that an uploaded HTML page never runs in this server's origin.
        headers = {"content-disposition": f'attachment; filename="{document.document_id}"'}
        cleanup = BackgroundTask(documents.discard, document)
        return Response(content, media_type=_OCTET_STREAM, headers=headers, background=cleanup)

    return router


async def _read_upload(
    request: Request, gateway: ModelGateway, glossaries: GlossaryStore
) -> tuple[bytes, str, ServedModel, Glossary | None]:
    """Return the content of the file, its format, the model that translates it, and its glossary."""
    async with open_form(request) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise ApiError("no_file", {"param": "file"})
        options = validate_fields(DocumentRequest, form_fields(form))
        options.check_supported()
        kind = find_format(options.filename or file.filename or "")
        if options.output_format and find_format(f"x.{options.output_format}") != kind:
            raise ApiError("other_format", {"param": "output_format"}, ending=options.output_format)
        source, target = resolve_pair(gateway, options.source_lang, options.target_lang)
        glossary = get_glossary(glossaries, options.glossary_id, source, target)
        content = await read_upload(file, gateway)
    served = await choose_model(gateway, content, kind, source, target)
    return content, kind, served, glossary


def get_glossary(
    glossaries: GlossaryStore, glossary_id: str | None, source: str | None, target: str
) -> Glossary | None:
    """Return the dictionary of a language pair, or None without a `glossary_id`."""
    if not glossary_id:
        return None
    stored = glossaries.get(glossary_id)
    if source is None:
        raise ApiError("glossary_without_source", {"param": "source_lang"})
    return stored.get(source, target)


def to_deepl_code(code: str) -> str:
    """Return DeepL's code of a language, such as EN for en."""
    return _DEEPL_CODES.get(code, code.upper())


def resolve_language(tag: str, codes: Collection[str]) -> str:
    """Return the served code for a tag such as EN-US or ZH-HANS."""
    code = match_language(tag, codes)
    if code is None:
        raise ApiError("unknown_language", {"param": "target_lang"}, language=tag)
    return code


def source_languages(gateway: ModelGateway) -> list[DeepLLanguage]:
    return [DeepLLanguage(language=to_deepl_code(code), name=language_name(code)) for code in gateway.languages()]


def target_languages(gateway: ModelGateway) -> list[DeepLLanguage]:
    listed = [
        (tag, name)
        for code in target_codes(gateway)
        for tag, name in _REGIONS.get(code, {to_deepl_code(code): language_name(code)}).items()
    ]
    return [DeepLLanguage(language=tag, name=name, supports_formality=False) for tag, name in listed]


def target_codes(gateway: ModelGateway) -> list[str]:
    return list(dict.fromkeys(target for _, target in gateway.pairs()))


def resolve_pair(gateway: ModelGateway, source: str | None, target: str) -> tuple[str | None, str]:
    """Return the language codes of a pair. The source is None if it has to be detected."""
    from_code = resolve_language(source, gateway.languages()) if source else None
    return from_code, resolve_language(target, target_codes(gateway))
