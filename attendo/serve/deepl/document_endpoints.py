"""/v2/document: a file goes in, is asked after until it is done, and is fetched once."""

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import Response

from attendo.serve.deepl.languages import pair_of
from attendo.serve.deepl.replies import (
    DOCUMENT_BODY,
    KEY_BODY,
    RESULT_REFUSALS,
    STATUS_REFUSALS,
    UPLOAD_REFUSALS,
    DocumentReply,
    StatusReply,
)
from attendo.serve.deepl.requests import DocumentRequest, KeyRequest, asked, fields_of, fitting, form_of
from attendo.serve.documents import Document, Documents
from attendo.serve.documents.formats import KINDS, Kind, kind_of, read
from attendo.serve.errors import Refusal, answer
from attendo.serve.office import Office
from attendo.serve.shelf import Served
from attendo.serve.unnamed_sources import found_source

_BYTES = "application/octet-stream"
# DeepL's library asks at once, and then only every five seconds; most documents are done before that.
_WAITED_SECONDS = 3.0


def routes(office: Office, documents: Documents) -> APIRouter:
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
