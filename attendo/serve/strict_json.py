"""Bodies as JSON that is nothing but JSON: no NaN, no infinity, no half of a surrogate pair."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from attendo.serve.errors import Refusal

_MOST_NAMES = 1_000  # of an object: to say of each that it is unknown takes longer than to answer


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
