"""DeepL's API for glossaries: version 2 with one language pair, and version 3 with several."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from attendo.serve.apis.deepl import ShortText, read_body, resolve_pair, validate_fields
from attendo.serve.http.auth import key_dependency
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.openapi import JSON, URL_ENCODED, Responses, error_responses, request_body
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.translation.glossaries import (
    EntriesFormat,
    GlossaryStore,
    Pair,
    StoredGlossary,
    delete_dictionary,
    format_entries,
    merge_dictionary,
    parse_entries,
    replace_dictionary,
)

_TSV = "text/tab-separated-values"
Name = Annotated[str, Field(min_length=1, max_length=1024)]


class DictionaryRequest(BaseModel):
    """The entries of one language pair."""

    source_lang: ShortText
    target_lang: ShortText
    entries: str
    entries_format: EntriesFormat = "tsv"


class GlossaryRequest(DictionaryRequest):
    name: Name


class MultilingualRequest(BaseModel):
    name: Name
    dictionaries: Annotated[list[DictionaryRequest], Field(min_length=1, max_length=100)]


class MultilingualUpdateRequest(BaseModel):
    """A new name, or dictionaries whose entries are added."""

    name: Name | None = None
    dictionaries: Annotated[list[DictionaryRequest], Field(max_length=100)] = []


class PairRequest(BaseModel):
    source_lang: ShortText
    target_lang: ShortText


class LanguagePairResponse(BaseModel):
    source_lang: str
    target_lang: str


class LanguagePairsResponse(BaseModel):
    supported_languages: list[LanguagePairResponse]


class GlossaryResponse(LanguagePairResponse):
    glossary_id: str
    name: str
    ready: bool = True
    creation_time: str
    entry_count: int


class GlossariesResponse(BaseModel):
    glossaries: list[GlossaryResponse]


class DictionaryResponse(LanguagePairResponse):
    entry_count: int


class MultilingualResponse(BaseModel):
    glossary_id: str
    name: str
    creation_time: str
    dictionaries: list[DictionaryResponse]


class MultilingualListResponse(BaseModel):
    glossaries: list[MultilingualResponse]


class EntriesResponse(LanguagePairResponse):
    entries: str
    entries_format: EntriesFormat = "tsv"


class DictionaryEntriesResponse(BaseModel):
    dictionaries: list[EntriesResponse]


_FORM_ERRORS = ("bad_json", "bad_request", "bad_form", "bad_setting", "unknown_language", "no_such_pair")
CREATE_ERRORS = error_responses("deepl", *_FORM_ERRORS, "too_many_glossaries")
CHANGE_ERRORS = error_responses("deepl", *_FORM_ERRORS, "too_many_glossaries", "unknown_glossary")
GET_ERRORS = error_responses("deepl", "unknown_glossary")
PAIR_ERRORS = error_responses("deepl", *_FORM_ERRORS, "unknown_glossary", "glossary_pair_missing")
ENTRIES_RESPONSE: Responses = {200: {"content": {_TSV: {"schema": {"type": "string"}}}}}
PAIR_PARAMETERS = {
    "parameters": [
        {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}
        for name in ("source_lang", "target_lang")
    ]
}


def _body(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a body with dictionaries. `$defs` of a schema are not at the root of the document."""
    found = schema.model_json_schema()
    dictionary = found.pop("$defs")[DictionaryRequest.__name__]
    found["properties"]["dictionaries"]["items"] = dictionary
    return request_body({JSON: found})


def routes(gateway: ModelGateway, store: GlossaryStore) -> APIRouter:
    router = APIRouter(dependencies=[key_dependency(gateway.settings.keys)], tags=["DeepL"])
    router.include_router(_glossary_routes(gateway, store), prefix="/v2")
    router.include_router(_single_glossary_routes(store), prefix="/v2")
    router.include_router(_multilingual_routes(gateway, store), prefix="/v3")
    router.include_router(_single_multilingual_routes(gateway, store), prefix="/v3")
    router.include_router(_dictionary_routes(gateway, store), prefix="/v3")
    return router


def _glossary_routes(gateway: ModelGateway, store: GlossaryStore) -> APIRouter:
    router = APIRouter()

    @router.get("/glossary-language-pairs")
    async def glossary_pairs() -> LanguagePairsResponse:
        """List the language pairs of the models."""
        pairs = [LanguagePairResponse(source_lang=source, target_lang=target) for source, target in gateway.pairs()]
        return LanguagePairsResponse(supported_languages=pairs)

    @router.post(
        "/glossaries",
        status_code=201,
        response_model=GlossaryResponse,
        responses=CREATE_ERRORS,
        openapi_extra=request_body(dict.fromkeys((JSON, URL_ENCODED), GlossaryRequest.model_json_schema())),
    )
    async def create(request: Request) -> Response:
        body = await read_body(request, GlossaryRequest)
        return json_response(_to_glossary(store.put(_make_glossary(gateway, body.name, [body]))), 201)

    @router.get("/glossaries")
    async def glossaries() -> GlossariesResponse:
        """List the glossaries with one language pair."""
        return GlossariesResponse(
            glossaries=[_to_glossary(each) for each in store.list_all() if len(each.dictionaries) == 1]
        )

    return router


def _single_glossary_routes(store: GlossaryStore) -> APIRouter:
    router = APIRouter()

    @router.get("/glossaries/{glossary_id}", responses=GET_ERRORS)
    async def glossary(glossary_id: str) -> GlossaryResponse:
        return _to_glossary(_get_single(store, glossary_id))

    @router.get(
        "/glossaries/{glossary_id}/entries",
        response_class=Response,
        responses={**GET_ERRORS, **ENTRIES_RESPONSE},
    )
    async def entries(glossary_id: str) -> Response:
        """Return the entries as tab-separated values."""
        (dictionary,) = _get_single(store, glossary_id).dictionaries.values()
        return Response(format_entries(dictionary), media_type=_TSV)

    @router.delete("/glossaries/{glossary_id}", status_code=204, response_class=Response, responses=GET_ERRORS)
    async def delete(glossary_id: str) -> Response:
        store.delete(_get_single(store, glossary_id).glossary_id)
        return Response(status_code=204)

    return router


def _multilingual_routes(gateway: ModelGateway, store: GlossaryStore) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/glossaries",
        status_code=201,
        response_model=MultilingualResponse,
        responses=CREATE_ERRORS,
        openapi_extra=_body(MultilingualRequest),
    )
    async def create(request: Request) -> Response:
        body = await read_body(request, MultilingualRequest)
        made = _make_glossary(gateway, body.name, body.dictionaries)
        return json_response(_to_multilingual(store.put(made)), 201)

    @router.get("/glossaries")
    async def glossaries() -> MultilingualListResponse:
        """List all glossaries."""
        return MultilingualListResponse(glossaries=[_to_multilingual(each) for each in store.list_all()])

    return router


def _single_multilingual_routes(gateway: ModelGateway, store: GlossaryStore) -> APIRouter:
    router = APIRouter()

    @router.get("/glossaries/{glossary_id}", responses=GET_ERRORS)
    async def glossary(glossary_id: str) -> MultilingualResponse:
        return _to_multilingual(store.get(glossary_id))

    @router.patch(
        "/glossaries/{glossary_id}",
        response_model=MultilingualResponse,
        responses=CHANGE_ERRORS,
        openapi_extra=_body(MultilingualUpdateRequest),
    )
    async def update(glossary_id: str, request: Request) -> Response:
        """Change the name, or add entries. An entry replaces the one with the same source term."""
        body = await read_body(request, MultilingualUpdateRequest)
        stored = store.get(glossary_id)
        for each in body.dictionaries:
            stored = merge_dictionary(stored, _resolve(gateway, each), parse_entries(each.entries, each.entries_format))
        named = StoredGlossary(body.name or stored.name, stored.dictionaries, stored.glossary_id, stored.created)
        return json_response(_to_multilingual(store.put(named)))

    @router.delete("/glossaries/{glossary_id}", status_code=204, response_class=Response, responses=GET_ERRORS)
    async def delete(glossary_id: str) -> Response:
        store.delete(glossary_id)
        return Response(status_code=204)

    return router


def _dictionary_routes(gateway: ModelGateway, store: GlossaryStore) -> APIRouter:
    router = APIRouter(prefix="/glossaries/{glossary_id}")

    @router.get(
        "/entries", response_model=DictionaryEntriesResponse, responses=PAIR_ERRORS, openapi_extra=PAIR_PARAMETERS
    )
    async def entries(glossary_id: str, request: Request) -> Response:
        source, target = _read_pair(gateway, request)
        text = format_entries(store.get(glossary_id).get(source, target))
        found = EntriesResponse(source_lang=source, target_lang=target, entries=text)
        return json_response(DictionaryEntriesResponse(dictionaries=[found]))

    @router.put(
        "/dictionaries",
        response_model=DictionaryResponse,
        responses=CHANGE_ERRORS,
        openapi_extra=request_body({JSON: DictionaryRequest.model_json_schema()}),
    )
    async def replace(glossary_id: str, request: Request) -> Response:
        """Replace all entries of a language pair."""
        body = await read_body(request, DictionaryRequest)
        pair, dictionary = _resolve(gateway, body), parse_entries(body.entries, body.entries_format)
        store.put(replace_dictionary(store.get(glossary_id), pair, dictionary))
        return json_response(_to_dictionary(pair, len(dictionary)))

    @router.delete(
        "/dictionaries",
        status_code=204,
        response_class=Response,
        responses=PAIR_ERRORS,
        openapi_extra=PAIR_PARAMETERS,
    )
    async def delete(glossary_id: str, request: Request) -> Response:
        """Delete the entries of a language pair."""
        store.put(delete_dictionary(store.get(glossary_id), _read_pair(gateway, request)))
        return Response(status_code=204)

    return router


def _resolve(gateway: ModelGateway, request: DictionaryRequest | PairRequest) -> Pair:
    """Return the language codes of a dictionary. A model must exist for the pair."""
    source, target = resolve_pair(gateway, request.source_lang, request.target_lang)
    if source is None or target not in gateway.languages()[source]:
        raise ApiError("no_such_pair", source=str(source), target=target)
    return source, target


def _read_pair(gateway: ModelGateway, request: Request) -> Pair:
    return _resolve(gateway, validate_fields(PairRequest, dict(request.query_params)))


def _make_glossary(gateway: ModelGateway, name: str, dictionaries: Sequence[DictionaryRequest]) -> StoredGlossary:
    made = StoredGlossary(name, {})
    for each in dictionaries:
        made = merge_dictionary(made, _resolve(gateway, each), parse_entries(each.entries, each.entries_format))
    return made


def _get_single(store: GlossaryStore, glossary_id: str) -> StoredGlossary:
    """Return a glossary with one language pair. Version 2 does not have the others."""
    found = store.get(glossary_id)
    if len(found.dictionaries) != 1:
        raise ApiError("unknown_glossary")
    return found


def _format_time(stored: StoredGlossary) -> str:
    return stored.created.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _to_glossary(stored: StoredGlossary) -> GlossaryResponse:
    ((source, target),) = stored.dictionaries
    return GlossaryResponse(
        glossary_id=stored.glossary_id,
        name=stored.name,
        source_lang=source,
        target_lang=target,
        creation_time=_format_time(stored),
        entry_count=len(stored.dictionaries[source, target]),
    )


def _to_dictionary(pair: Pair, count: int) -> DictionaryResponse:
    return DictionaryResponse(source_lang=pair[0], target_lang=pair[1], entry_count=count)


def _to_multilingual(stored: StoredGlossary) -> MultilingualResponse:
    return MultilingualResponse(
        glossary_id=stored.glossary_id,
        name=stored.name,
        creation_time=_format_time(stored),
        dictionaries=[_to_dictionary(pair, len(each)) for pair, each in stored.dictionaries.items()],
    )
