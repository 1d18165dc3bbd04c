"""What a request gives by name, in whichever way its client sends it: as JSON, as a form, or in the address."""

from typing import Any

from pydantic_core import from_json
from starlette.datastructures import UploadFile
from starlette.requests import Request

from attendo.serve.errors import Refusal
from attendo.serve.forms import form_of, pairs_in


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
