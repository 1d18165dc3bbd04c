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
from attendo.serve.http.errors import json_response
from attendo.serve.scheduling.gateway import ModelGateway

_HEARTBEAT_SECONDS = 1.9  # without a step while requests wait; frequent probes detect it within 2 s
WATCHDOG_EXIT_CODE = 70  # EX_SOFTWARE in sysexits.h: internal error
_CHECK_INTERVAL_SECONDS = 0.25
_ERROR_GRACE_SECONDS = 0.5  # for sending error responses before the process ends
_log = logging.getLogger("attendo.serve")


class Health(BaseModel):
    """Health response in the format of LibreTranslate."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Readiness response; `reason` explains why the server is not ready."""

    ready: bool
    reason: Literal["starting", "draining", "stopped", "hanging"] | None = None


def routes(gateway: ModelGateway) -> APIRouter:
    router = APIRouter()

    @router.get("/livez")
    async def livez() -> Health:
        return Health()

    @router.get("/health")
    async def health() -> Health:
        return Health()

    @router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> Response:
        reason = not_ready_reason(gateway)
        return json_response(Readiness(ready=reason is None, reason=reason), 503 if reason else 200)

    return router


def not_ready_reason(gateway: ModelGateway) -> Literal["starting", "draining", "stopped", "hanging"] | None:
    """Return why requests are not served, or None if the server is ready."""
    batchers = [each.worker for each in gateway.registry.all()]
    if not all(each.is_alive for each in batchers):
        return "stopped"
    if gateway.draining:
        return "draining"
    if not gateway.is_warm:
        return "starting"
    if any(each.seconds_since_step > _HEARTBEAT_SECONDS for each in batchers):
        return "hanging"
    return None


class Watchdog:
    """Ends the process if a worker dies or hangs. It has its own thread, which a busy event loop cannot block."""

    def __init__(self, gateway: ModelGateway, exit_process: Callable[[int], None] = os._exit) -> None:
        """`exit_process` must not join threads: a hanging thread would never end."""
        self._gateway, self._exit_process = gateway, exit_process
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="attendo-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_CHECK_INTERVAL_SECONDS):
            if (fault := self.find_fault()) is not None:
                _log.critical("%s: this process ends with %d, to be started again", fault, WATCHDOG_EXIT_CODE)
                time.sleep(_ERROR_GRACE_SECONDS)
                self._exit_process(WATCHDOG_EXIT_CODE)
                return

    def find_fault(self) -> ModelError | None:
        for served in self._gateway.registry.all():
            if not served.worker.is_alive:
                return ModelError("worker_thread_died", name=served.name)
            if served.worker.seconds_since_step > self._gateway.settings.watchdog_seconds:
                seconds = self._gateway.settings.watchdog_seconds
                return ModelError("worker_thread_hung", name=served.name, seconds=seconds)
        return None
