"""DeepL's API, version 2: texts, documents, languages and usage. The glossary lists are empty."""

from collections.abc import Collection
from typing import Any

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import Response

from attendo.serve.apis.deepl_schemas import (
    DOCUMENT_BODY,
    KEY_BODY,
    RESULT_ERRORS,
    STATUS_ERRORS,
    TRANSLATE_BODY,
    TRANSLATE_ERRORS,
    TYPE_PARAMETER,
    UPLOAD_ERRORS,
    DeepLLanguage,
    DeepLTranslateRequest,
    DeepLTranslateResponse,
    DeepLTranslation,
    DeepLUsageResponse,
    DocumentKeyRequest,
    DocumentRequest,
    DocumentResponse,
    DocumentStatusResponse,
    GlossariesResponse,
    GlossaryPairsResponse,
    form_fields,
    open_form,
    read_body,
    validate_fields,
)
from attendo.serve.http.auth import key_dependency
from attendo.serve.http.bodies import request_params
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import error_responses
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.translation.documents import (
    DOCUMENT_FORMATS,
    Document,
    DocumentFormat,
    DocumentStore,
    decode_document,
    document_format,
)
from attendo.serve.translation.translator import detect_source_language, detect_source_languages, translate_detected
from attendo.text.languages import language_name, match_language

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
__all__ = ["routes"]


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter(prefix="/v2", dependencies=[key_dependency(gateway.settings.keys)], tags=["DeepL"])
    documents, texts = DocumentStore(gateway), _TextTranslator(gateway)
    router.include_router(document_routes(gateway, documents))
    router.include_router(glossary_routes())

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

    def __init__(self, gateway: ModelGateway) -> None:
        self._gateway = gateway
        self.characters = 0

    async def translate(self, request: DeepLTranslateRequest) -> dict[str, Any]:
        request.check_supported()
        texts = request.texts
        self._gateway.check_texts(texts)
        source, target = resolve_pair(self._gateway, request.source_lang, request.target_lang)
        if source == target:
            raise ApiError("no_such_pair", source=source, target=target)
        how = request.segmentation_options
        froms = [source or ""] * len(texts)
        if source is None:
            froms = [
                each.language for each in await detect_source_languages(self._gateway, texts, target, how.text_format)
            ]
        translations = await translate_detected(self._gateway, froms, target, texts, how)
        self.characters += sum(map(len, texts))
        responses = [
            DeepLTranslation(
                detected_source_language=to_deepl_code(source),
                text=each.text,
                billed_characters=len(text),
                model_type_used=self._model_name(source, target) if request.model_type else None,
            )
            for text, source, each in zip(texts, froms, translations, strict=True)
        ]
        return {"translations": [each.model_dump(exclude_none=True) for each in responses]}

    def _model_name(self, source: str, target: str) -> str | None:
        """Return the name of the model for a pair, or None if the text is already in the target language."""
        return None if source == target else self._gateway.get_model_for_pair(source, target).name


def document_routes(gateway: ModelGateway, documents: DocumentStore) -> APIRouter:
    router = APIRouter(prefix="/document")

    @router.post("", response_model=DocumentResponse, responses=UPLOAD_ERRORS, openapi_extra=DOCUMENT_BODY)
    async def upload(request: Request) -> Response:
        document = await documents.add(*await _read_upload(request, gateway))
        return json_response(DocumentResponse(document_id=document.document_id, document_key=document.key))

    @router.post(
        "/{document_id}", response_model=DocumentStatusResponse, responses=STATUS_ERRORS, openapi_extra=KEY_BODY
    )
    async def status(document_id: str, request: Request) -> Response:
        document = documents.get(document_id, (await read_body(request, DocumentKeyRequest)).document_key)
        await documents.wait(document, _STATUS_WAIT_SECONDS)
        return json_response(_status_response(document).model_dump(exclude_none=True))

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


async def _read_upload(request: Request, gateway: ModelGateway) -> tuple[bytes, DocumentFormat, ServedModel]:
    """Return the content of the file, its format and the model that translates it."""
    async with open_form(request) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise ApiError("no_file", {"param": "file"})
        options = validate_fields(DocumentRequest, form_fields(form))
        options.check_supported()
        kind = document_format(options.filename or file.filename or "")
        if options.output_format and DOCUMENT_FORMATS.get(options.output_format.lower()) != kind:
            raise ApiError("other_format", {"param": "output_format"}, ending=options.output_format)
        source, target = resolve_pair(gateway, options.source_lang, options.target_lang)
        most = gateway.settings.documents_bytes
        content = await file.read(most + 1)
    if len(content) > most:
        raise ApiError("document_too_large", most=most)
    draft = decode_document(content, kind)
    source = source or detect_source_language(gateway, draft.text, target, kind).language
    if source == target:
        raise ApiError("no_such_pair", source=source, target=target)
    return content, kind, gateway.get_model_for_pair(source, target)


def _status_response(document: Document) -> DocumentStatusResponse:
    billed = document.characters if document.status == "done" else None
    return DocumentStatusResponse(
        document_id=document.document_id, status=document.status, billed_characters=billed, error_message=document.error
    )


def glossary_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/glossary-language-pairs")
    async def glossary_pairs() -> GlossaryPairsResponse:
        return GlossaryPairsResponse()

    @router.get("/glossaries")
    async def glossaries() -> GlossariesResponse:
        return GlossariesResponse()

    return router


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
