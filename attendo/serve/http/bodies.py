"""Request bodies: strict JSON, forms and query parameters, and base classes of the schemas."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Annotated, Any, get_origin
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import from_json
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from attendo.decode.config import make_field
from attendo.decode.options import RENAMED_OPTIONS, RENAMED_VALUES, CallFields, GenerationFields, list_options
from attendo.errors import UsageError
from attendo.serve.http.errors import ApiError
from attendo.settings import rename_settings

_MAX_FORM_FIELDS = 1_000  # of a form; each text is a field
_NOT_UTF8 = "its fields are not UTF-8"
_MAX_JSON_KEYS = 1_000  # of an object: reporting each as unknown takes longer than a translation
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
ModelName = Annotated[str, Field(max_length=500)]


async def parse_form(request: Request, max_files: int = _MAX_FORM_FIELDS) -> FormData:
    """Parse the form of a request; empty if there is none. Close it after use: uploads may be temporary files."""
    kind = _media_type(request)
    if kind == "application/x-www-form-urlencoded":
        return FormData([*parse_pairs(await request.body())])
    if kind != "multipart/form-data":
        return FormData()
    try:
        return await _Utf8MultiPartParser(
            request.headers, request.stream(), max_files=max_files, max_fields=_MAX_FORM_FIELDS
        ).parse()
    except MultiPartException as error:
        raise ApiError("bad_form", detail=error.message[:200]) from None


def parse_pairs(encoded: bytes) -> list[tuple[str, str]]:
    """Parse the fields of a form or query string as UTF-8. Starlette would decode raw UTF-8 as Latin-1."""
    try:
        return parse_qsl(encoded.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS)
    except UnicodeDecodeError:
        raise ApiError("bad_form", detail=_NOT_UTF8) from None
    except ValueError:
        raise ApiError("bad_form", detail=f"it has more than {_MAX_FORM_FIELDS:,} fields") from None


class _Utf8MultiPartParser(MultiPartParser):
    """Decodes every field as UTF-8. Starlette would use the declared charset, or Latin-1."""

    def on_part_begin(self) -> None:
        super().on_part_begin()
        self._charset = "utf-8"

    def on_part_end(self) -> None:
        if self._current_part.file is None:
            try:
                self._current_part.data.decode()
            except UnicodeDecodeError:
                raise MultiPartException(_NOT_UTF8) from None
        super().on_part_end()


async def request_params(request: Request) -> dict[str, Any]:
    """Return the parameters of a JSON body, or those of the query string and the form. The query string wins."""
    if is_json(request):
        return await read_json_object(request)
    found: dict[str, Any] = {}
    for name, value in [*parse_pairs(request.scope["query_string"]), *await _read_form_fields(request)]:
        found.setdefault(name, value)  # the first value counts, as on the original servers of the clients
    return found


def is_json(request: Request) -> bool:
    kind = _media_type(request)
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json_object(request: Request) -> dict[str, Any]:
    """Return the body, parsed as strict JSON regardless of its content type."""
    found = _parse_json(await request.body())
    if not isinstance(found, dict):
        raise ApiError("bad_json", detail="an object is needed")
    return found


def _parse_json(body: bytes) -> Any:
    """Parse strict JSON, without NaN and infinity."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError("bad_json", detail=str(error)[:200]) from None


async def _read_form_fields(request: Request) -> list[tuple[str, Any]]:
    """Return the fields of a form without its files."""
    form = await parse_form(request)
    try:
        return [(name, each) for name, each in form.multi_items() if not isinstance(each, UploadFile)]
    finally:
        await form.close()


class StrictRoute(APIRoute):
    """A route whose body is parsed by pydantic's strict JSON parser."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        found = _parse_json(await self.body())
        if isinstance(found, dict) and len(found) > _MAX_JSON_KEYS:
            raise ApiError("bad_json", detail=f"an object with {len(found):,} names")
        return found


class RequestModel(BaseModel):
    """Base class of requests, with strict types: no coercion between strings and numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseModel(BaseModel):
    """Base class of responses. A number that is not finite becomes null."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DecodingRequest(RequestModel):
    """Base class of requests with decoding options. Names and values of version 0.1.0 are accepted."""

    @model_validator(mode="before")
    @classmethod
    def _accept_old_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        try:
            return rename_settings(values, RENAMED_OPTIONS, RENAMED_VALUES, warn=False)
        except UsageError as error:
            raise ApiError("bad_request", {"param": str(error.values["old"])}, detail=error) from None


def with_decoding_options(names: Iterable[str], types: Mapping[str, Any] | None = None, **limits: int) -> Any:
    """Return a subclass of `DecodingRequest` with declared options as fields, each None by default.

    The types are those that JSON has. `types` and `limits` replace declared types and maximums.
    """
    options = {each.name: each for each in (*list_options(CallFields), *list_options(GenerationFields))}
    found: dict[str, Any] = {}
    for name in names:
        declared: Any = options[name].type
        kind = (types or {}).get(name) or (list[str] if get_origin(declared) is tuple else declared)
        changes = {"le": limits[name]} if name in limits else {}
        found[name] = (kind | None, make_field(options[name], default=None, **changes))
    return create_model("_DeclaredOptions", __base__=DecodingRequest, **found)
