"""DeepL's API, version 2: texts, documents, languages, usage; its glossary lists are empty."""

from collections.abc import Collection
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import Response

from attendo.serve.apis.deepl_schemas import (
    DOCUMENT_BODY,
    KEY_BODY,
    RESULT_REFUSALS,
    STATUS_REFUSALS,
    TRANSLATE_BODY,
    TRANSLATE_REFUSALS,
    TYPE_PARAMETER,
    UPLOAD_REFUSALS,
    DocumentReply,
    DocumentRequest,
    GlossariesReply,
    GlossaryPairsReply,
    KeyRequest,
    LanguageReply,
    StatusReply,
    TranslateReply,
    TranslateRequest,
    TranslationReply,
    UsageReply,
    asked,
    fields_of,
    fitting,
    form_of,
)
from attendo.serve.http.auth import admitted, bearer
from attendo.serve.http.bodies import values_of
from attendo.serve.http.errors import Refusal, answer
from attendo.serve.http.openapi import refusals
from attendo.serve.languages import closest, name_of
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.serve.translation.documents import KINDS, Document, Documents, Kind, kind_of, read
from attendo.serve.translation.translator import found_source, found_sources, translated_from

_NO_LIMIT = 1_000_000_000_000  # what DeepL tells of accounts without one
_BYTES = "application/octet-stream"
# DeepL's library asks at once, and then only every five seconds; most documents are done before that.
_WAITED_SECONDS = 3.0
# Clients refuse these targets without a region; to a model here the regions are the same.
_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_NAMES = {"zt": "ZH-HANT", "no": "NB"}
__all__ = ["routes"]


def routes(office: Office) -> APIRouter:
    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(prefix="/v2", dependencies=[Depends(with_key)], tags=["DeepL"])
    documents, texts = Documents(office), _Translated(office)
    router.include_router(document_routes(office, documents))
    router.include_router(glossary_routes())

    @router.post(
        "/translate", response_model=TranslateReply, responses=TRANSLATE_REFUSALS, openapi_extra=TRANSLATE_BODY
    )
    async def translate(request: Request) -> Response:
        """Texts, as JSON or as a form."""
        return answer(await texts.reply(await asked(request, TranslateRequest)))

    @router.get(
        "/languages",
        response_model=list[LanguageReply],
        responses=refusals("deepl", "bad_type", "bad_form", "bad_json"),
        openapi_extra=TYPE_PARAMETER,
    )
    async def languages(request: Request) -> Response:
        """DeepL's own library sends `type` as a form, which is the body of a GET."""
        kind = (await values_of(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise Refusal("bad_type", kind=str(kind)[:40])
        listed = sources(office) if kind == "source" else targets(office)
        return answer([each.model_dump(exclude_none=True) for each in listed])

    @router.get("/usage")
    async def usage() -> UsageReply:
        """Of all clients, since the server began."""
        return UsageReply(character_count=texts.characters + documents.characters, character_limit=_NO_LIMIT)

    return router


class _Translated:
    """Texts, each from its own language; how many characters that were."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self.characters = 0

    async def reply(self, request: TranslateRequest) -> dict[str, Any]:
        request.check_met()
        texts = request.texts
        self._office.check(texts)
        source, target = pair_of(self._office, request.source_lang, request.target_lang)
        if source == target:
            raise Refusal("no_such_pair", source=source, target=target)
        how = request.reading
        froms = [source or ""] * len(texts)
        if source is None:
            froms = [each.language for each in await found_sources(self._office, texts, target, how.kind)]
        done = await translated_from(self._office, froms, target, texts, how)
        self.characters += sum(map(len, texts))
        replies = [
            TranslationReply(
                detected_source_language=told(source),
                text=each.text,
                billed_characters=len(text),
                model_type_used=self._model(source, target) if request.model_type else None,
            )
            for text, source, each in zip(texts, froms, done, strict=True)
        ]
        return {"translations": [each.model_dump(exclude_none=True) for each in replies]}

    def _model(self, source: str, target: str) -> str | None:
        """None for what is in the language already."""
        return None if source == target else self._office.for_pair(source, target).name


def document_routes(office: Office, documents: Documents) -> APIRouter:
    router = APIRouter(prefix="/document")

    @router.post("", response_model=DocumentReply, responses=UPLOAD_REFUSALS, openapi_extra=DOCUMENT_BODY)
    async def upload(request: Request) -> Response:
        document = await documents.add(*await _sent(request, office))
        return answer(DocumentReply(document_id=document.number, document_key=document.key))

    @router.post("/{document_id}", response_model=StatusReply, responses=STATUS_REFUSALS, openapi_extra=KEY_BODY)
    async def status(document_id: str, request: Request) -> Response:
        document = documents.found(document_id, (await asked(request, KeyRequest)).document_key)
        await documents.ended(document, _WAITED_SECONDS)
        return answer(_status(document).model_dump(exclude_none=True))

    @router.post(
        "/{document_id}/result",
        response_class=Response,
        responses={**RESULT_REFUSALS, 200: {"content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}},
        openapi_extra=KEY_BODY,
    )
    async def result(document_id: str, request: Request) -> Response:
        document = documents.found(document_id, (await asked(request, KeyRequest)).document_key)
        content = await documents.content(document)
        # Never as what it is: a page from somebody else's document would be one of this server.
        headers = {"content-disposition": f'attachment; filename="{document.number}"'}
        forgotten = BackgroundTask(documents.fetched, document)
        return Response(content, media_type=_BYTES, headers=headers, background=forgotten)

    return router


async def _sent(request: Request, office: Office) -> tuple[bytes, Kind, Served]:
    """The file, of which kind it is, and who translates it."""
    async with form_of(request) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise Refusal("no_file", {"param": "file"})
        wanted = fitting(DocumentRequest, fields_of(form))
        wanted.check_met()
        kind = kind_of(wanted.filename or file.filename or "")
        if wanted.output_format and KINDS.get(wanted.output_format.lower()) != kind:
            raise Refusal("other_format", {"param": "output_format"}, ending=wanted.output_format)
        source, target = pair_of(office, wanted.source_lang, wanted.target_lang)
        most = office.settings.documents_bytes
        content = await file.read(most + 1)
    if len(content) > most:
        raise Refusal("document_too_large", most=most)
    draft = read(content, kind)
    source = source or found_source(office, draft.text, target, kind).language
    if source == target:
        raise Refusal("no_such_pair", source=source, target=target)
    return content, kind, office.for_pair(source, target)


def _status(document: Document) -> StatusReply:
    billed = document.characters if document.status == "done" else None
    return StatusReply(
        document_id=document.number, status=document.status, billed_characters=billed, error_message=document.error
    )


def glossary_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/glossary-language-pairs")
    async def glossary_pairs() -> GlossaryPairsReply:
        return GlossaryPairsReply()

    @router.get("/glossaries")
    async def glossaries() -> GlossariesReply:
        return GlossariesReply()

    return router


def told(code: str) -> str:
    """EN for en."""
    return _NAMES.get(code, code.upper())


def meant(tag: str, codes: Collection[str]) -> str:
    """The code of EN-US or ZH-HANS, among those that are served."""
    code = closest(tag, codes)
    if code is None:
        raise Refusal("unknown_language", {"param": "target_lang"}, language=tag)
    return code


def sources(office: Office) -> list[LanguageReply]:
    return [LanguageReply(language=told(code), name=name_of(code)) for code in office.languages()]


def targets(office: Office) -> list[LanguageReply]:
    listed = [
        (tag, name)
        for code in target_codes(office)
        for tag, name in _REGIONS.get(code, {told(code): name_of(code)}).items()
    ]
    return [LanguageReply(language=tag, name=name, supports_formality=False) for tag, name in listed]


def target_codes(office: Office) -> list[str]:
    return list(dict.fromkeys(target for _, target in office.pairs()))


def pair_of(office: Office, source: str | None, target: str) -> tuple[str | None, str]:
    """As codes; without a source it is to be found out."""
    from_code = meant(source, office.languages()) if source else None
    return from_code, meant(target, target_codes(office))
