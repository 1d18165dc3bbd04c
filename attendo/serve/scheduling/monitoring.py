"""Monitoring: health routes (/livez, /readyz, /health), /metrics, and the watchdog of the worker threads."""

import ipaddress
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from fastapi import APIRouter, Request
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.responses import Response

from attendo.errors import ModelError
from attendo.serve.http.auth import bearer_token, require_key
from attendo.serve.http.errors import ApiError, json_response
from attendo.serve.http.metrics import resident_bytes
from attendo.serve.http.openapi import Responses, error_responses
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel

_HEARTBEAT_SECONDS = 1.9  # without a step while requests wait; frequent probes detect it within 2 s
WATCHDOG_EXIT_CODE = 70  # EX_SOFTWARE in sysexits.h: internal error
_CHECK_INTERVAL_SECONDS = 0.25
_ERROR_GRACE_SECONDS = 0.5  # for sending error responses before the process ends
_METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS_RESPONSES: Responses = {
    **error_responses("ours", "metrics_closed"),
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
}
_FORWARD_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")
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
    gateway.metrics.registry.register(_LiveGauges(gateway.registry.all()))
    for served in gateway.registry.all():
        served.worker.on_finished = gateway.metrics.observe_times

    @router.get("/livez")
    @router.get("/health")
    async def health() -> Health:
        return Health()

    @router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> Response:
        reason = not_ready_reason(gateway)
        return json_response(Readiness(ready=reason is None, reason=reason), 503 if reason else 200)

    @router.get("/metrics", response_class=Response, responses=_METRICS_RESPONSES)
    def metrics(request: Request) -> Response:
        if not gateway.settings.metrics_open and not _is_local(request):
            if not gateway.settings.keys:
                raise ApiError("metrics_closed")
            require_key(gateway.settings.keys, bearer_token(request))
        return Response(generate_latest(gateway.metrics.registry), media_type=_METRICS_CONTENT_TYPE)

    return router


class _LiveGauges(Collector):
    """Gauges that are read at every scrape."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("attendo_waiting_requests", "Requests that have not begun", labels=["model"])
        running = GaugeMetricFamily("attendo_running_requests", "Requests that have begun", labels=["model"])
        batch = GaugeMetricFamily("attendo_batch_size", "Sentences in the last step", labels=["model"])
        info = GaugeMetricFamily("attendo_model_info", "SHA-256 of the model's manifest", labels=["model", "sha256"])
        for each in self._models:
            waiting.add_metric([each.name], each.worker.num_waiting)
            running.add_metric([each.name], each.worker.num_running)
            batch.add_metric([each.name], each.worker.batch_size)
            info.add_metric([each.name, each.sha256 or ""], 1)
        yield from (waiting, running, batch, info)
        yield GaugeMetricFamily("attendo_resident_bytes", "Memory of this process", value=resident_bytes())


def _is_local(request: Request) -> bool:
    """True for a request from this machine that no proxy has forwarded."""
    if request.client is None or any(name in request.headers for name in _FORWARD_HEADERS):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


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
