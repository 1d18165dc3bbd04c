"""/v2/translate, /v2/languages, /v2/usage, and what lies in files beside this one."""

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from attendo.serve.deepl import document_endpoints, glossaries
from attendo.serve.deepl.languages import pair_of, sources, targets, told
from attendo.serve.deepl.replies import (
    TRANSLATE_BODY,
    TRANSLATE_REFUSALS,
    TYPE_PARAMETER,
    LanguageReply,
    TranslateReply,
    TranslationReply,
    UsageReply,
)
from attendo.serve.deepl.requests import TranslateRequest, asked
from attendo.serve.documents import Documents
from attendo.serve.errors import Refusal, answer
from attendo.serve.keys import admitted, bearer
from attendo.serve.office import Office
from attendo.serve.openapi import refusals
from attendo.serve.request_values import values_of
from attendo.serve.translating import translated_from
from attendo.serve.unnamed_sources import found_sources

_NO_LIMIT = 1_000_000_000_000  # what DeepL tells of accounts without one


def routes(office: Office) -> APIRouter:
    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(prefix="/v2", dependencies=[Depends(with_key)], tags=["DeepL"])
    documents, texts = Documents(office), _Translated(office)
    router.include_router(document_endpoints.routes(office, documents))
    router.include_router(glossaries.routes())

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
