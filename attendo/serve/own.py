"""Our own API under /api/v1: for programs, and for the page."""

from fastapi import APIRouter, Depends, Request

from attendo.serve.explorer import ablation, catalogue, inside
from attendo.serve.explorer import answers as page_answers
from attendo.serve.explorer.requests import REQUESTS as OF_PAGE
from attendo.serve.explorer.requests import Decoder
from attendo.serve.keys import admitted, bearer
from attendo.serve.office import Office
from attendo.serve.programs import answers, scores
from attendo.serve.programs.requests import GenerateRequest, ScoredPair, ScoreRequest

API = "/api/v1"


def routes(office: Office) -> APIRouter:
    async def with_key(request: Request) -> None:
        admitted(office, bearer(request))

    router = APIRouter(prefix=API, dependencies=[Depends(with_key)])
    for group in (answers, scores, catalogue, page_answers, inside, ablation):
        router.include_router(group.routes(office))
    return router


def known_names() -> list[str]:
    """Of all fields of our requests: a mistyped one is told the nearest."""
    asked = (GenerateRequest, ScoreRequest, ScoredPair, Decoder, *OF_PAGE)
    return sorted({name for each in asked for name in each.model_fields})
