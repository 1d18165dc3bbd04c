"""Health routes (/livez, /readyz, /health) and the watchdog of the worker threads."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from attendo.errors import ModelError
from attendo.serve.http.errors import answer
from attendo.serve.scheduling.gateway import Office

_HEARTBEAT_SECONDS = 1.9  # without a step, while somebody waits for one; told within 2 s, by those who ask often
EXIT_CODE = 70  # an internal error, by sysexits.h
_LOOK_SECONDS = 0.25
_TELLING_SECONDS = 0.5  # for answers that say so
_log = logging.getLogger("attendo.serve")


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


class Watchdog:
    """A thread of its own: an event loop that is busy does not keep it from looking."""

    def __init__(self, office: Office, end: Callable[[int], None] = os._exit) -> None:
        """`end` leaves without waiting for anybody: a thread that hangs would be waited for without end."""
        self._office, self._end = office, end
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="attendo-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if (fault := self.fault()) is not None:
                _log.critical("%s: this process ends with %d, to be started again", fault, EXIT_CODE)
                time.sleep(_TELLING_SECONDS)
                self._end(EXIT_CODE)
                return

    def fault(self) -> ModelError | None:
        for served in self._office.shelf.all():
            if not served.batcher.ready_to_compute:
                return ModelError("worker_thread_died", name=served.name)
            if served.batcher.seconds_without_a_step > self._office.settings.hang_seconds:
                seconds = self._office.settings.hang_seconds
                return ModelError("worker_thread_hung", name=served.name, seconds=seconds)
        return None
