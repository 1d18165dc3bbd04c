"""Request bodies: strict JSON, forms and query parameters, and base classes of the schemas."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from attendo.serve.http.errors import Refusal

_FIELDS = 1_000  # of a form; each text is one
_NOT_UTF8 = "its fields are not UTF-8"
_MOST_NAMES = 1_000  # of an object: to say of each that it is unknown takes longer than to answer
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
ModelName = Annotated[str, Field(max_length=500)]
# Beyond these bounds numbers only overflow.
Normalise = Literal["none", "average", "gnmt", "reward"]
Stop = Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"]
Diversity = Annotated[float, Field(ge=0, le=100)]
Patience = Annotated[float, Field(gt=0, le=100)]
Temperature = Annotated[float, Field(ge=0.01, le=100)]
TopK = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0.000_001, le=1)]
Least = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
LengthPenalty = Annotated[float, Field(ge=-10, le=10)]
WordPenalty = Annotated[float, Field(ge=-100, le=100)]
Ngram = Annotated[int, Field(ge=0, le=100)]
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=100)]
Weight = Annotated[float, Field(ge=0, le=100)]


async def form_of(request: Request, files: int = _FIELDS) -> FormData:
    """To be closed when done: a file in it may lie on disk until then. Without a form it is empty."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return FormData([*pairs_in(await request.body())])
    if kind != "multipart/form-data":
        return FormData()
    try:
        return await _Parts(request.headers, request.stream(), max_files=files, max_fields=_FIELDS).parse()
    except MultiPartException as error:
        raise Refusal("bad_form", detail=error.message[:200]) from None


def pairs_in(written: bytes) -> list[tuple[str, str]]:
    """Names and values of a form or an address. Starlette would take raw UTF-8 for Latin-1, and so another text."""
    try:
        return parse_qsl(written.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
    except UnicodeDecodeError:
        raise Refusal("bad_form", detail=_NOT_UTF8) from None
    except ValueError:
        raise Refusal("bad_form", detail=f"it has more than {_FIELDS:,} fields") from None


class _Parts(MultiPartParser):
    """Every field is UTF-8, whatever charset the form speaks of: Starlette would read by any codec, or as Latin-1."""

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


async def values_of(request: Request) -> dict[str, Any]:
    """Of a JSON body its own; otherwise those of the address, then those of a form that the address has not."""
    if is_json(request):
        return await json_object(request)
    return _first([*pairs_in(request.scope["query_string"]), *await _fields(request)])


def is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def json_object(request: Request) -> dict[str, Any]:
    """The body, parsed strictly, whatever it is declared as."""
    try:
        found = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise Refusal("bad_json", detail=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise Refusal("bad_json", detail="an object is needed")
    return found


async def _fields(request: Request) -> list[tuple[str, Any]]:
    """Of a form. Files are left out: nobody asks for them here."""
    form = await form_of(request)
    try:
        return [(name, each) for name, each in form.multi_items() if not isinstance(each, UploadFile)]
    finally:
        await form.close()


def _first(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Where a name is given twice the first one counts, as for servers that clients were written against."""
    found: dict[str, Any] = {}
    for name, value in items:
        found.setdefault(name, value)
    return found


class StrictRoute(APIRoute):
    """A route whose body is parsed by pydantic's own parser."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            found = from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise Refusal("bad_json", detail=str(error)[:200]) from None
        if isinstance(found, dict) and len(found) > _MOST_NAMES:
            raise Refusal("bad_json", detail=f"an object with {len(found):,} names")
        return found


class Asked(BaseModel):
    """Numbers are numbers and texts are texts: nothing is turned into the other."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Told(BaseModel):
    """What an answer holds, and nothing beside it; a number that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")
