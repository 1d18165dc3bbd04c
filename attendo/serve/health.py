"""/livez, /readyz and /health: whether this server runs, whether it should be asked, and what LibreTranslate tells."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from attendo.serve.errors import answer
from attendo.serve.office import Office

_HEARTBEAT_SECONDS = 1.9  # without a step, while somebody waits for one; told within 2 s, by those who ask often


class Health(BaseModel):
    """As LibreTranslate has it."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """`reason` is why not, in a word."""

    ready: bool
    reason: Literal["starting", "draining", "stopped", "hanging"] | None = None


def routes(office: Office) -> APIRouter:
    router = APIRouter()

    @router.get("/livez")
    async def livez() -> Health:
        return Health()

    @router.get("/health")
    async def health() -> Health:
        return Health()

    @router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> Response:
        reason = why_not_ready(office)
        return answer(Readiness(ready=reason is None, reason=reason), 503 if reason else 200)

    return router


def why_not_ready(office: Office) -> Literal["starting", "draining", "stopped", "hanging"] | None:
    """None where whoever asks would be answered."""
    batchers = [each.batcher for each in office.shelf.all()]
    if not all(each.ready_to_compute for each in batchers):
        return "stopped"
    if office.draining:
        return "draining"
    if not office.warm:
        return "starting"
    if any(each.seconds_without_a_step > _HEARTBEAT_SECONDS for each in batchers):
        return "hanging"
    return None
