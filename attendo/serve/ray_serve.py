"""Ray Serve deployment: replicas of the server on one or several machines with one address."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from prometheus_client import generate_latest
from pydantic import Field
from starlette.types import Message, Receive, Scope, Send

from attendo.errors import UsageError
from attendo.runs.config import apply_changes
from attendo.serve.http.auth import check_key, read_keys
from attendo.serve.ray_metrics import REPORT_SECONDS, connect_collector
from attendo.serve.settings import LOOPBACK, ServeSettings
from attendo.settings import Settings

if TYPE_CHECKING:
    from attendo.serve.app import Application


class RayServeArguments(Settings):
    """Arguments of `serve run attendo.serve.ray_serve:application NAME=VALUE ...`."""

    models: str = Field(description="comma-separated model folders; every machine needs the same paths")
    hosts: str = Field("", description="allowed values of the Host header, besides local ones")
    languages: str = Field("", description="such as en-zh, one per model, if the model folders do not contain them")
    tasks: str = Field("", description="such as translation, one per model, if the model folders do not contain them")
    key_file: Path | None = Field(None, description="file of API keys, one per line; every request must send one")
    limits: str = Field("", description="other settings, such as max_queued=64,deadline_seconds=4")
    replicas: int = Field(1, ge=1, description="number of replicas; with max_replicas the smallest one")
    max_replicas: int | None = Field(None, ge=1, description="Ray starts up to as many replicas under load")
    target_requests: int = Field(16, ge=1, description="requests at a time per replica from which Ray starts another")
    device: str = Field("cpu", description="cpu, or cuda for one GPU per replica")
    threads: int = Field(1, ge=1, description="CPU threads per replica")


def application(arguments: RayServeArguments) -> Any:
    """Build the application for Ray's command line. Keys are read here, from the file and ATTENDO_KEYS."""
    return deployment(
        [Path(each) for each in _split_list(arguments.models)],
        _make_settings(arguments),
        make_autoscaling(arguments.replicas, arguments.max_replicas, arguments.target_requests) or arguments.replicas,
        arguments.device,
        arguments.threads,
        _split_list(arguments.languages),
        _split_list(arguments.tasks),
    )


def deployment(
    models: Sequence[Path],
    settings: ServeSettings | None = None,
    replicas: int | Mapping[str, Any] = 1,
    device: str = "cpu",
    threads: int = 1,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Any:
    """Return an application for `ray.serve.run`. Every replica loads all models in its own process.

    Run another one under the same name to update the models: Ray replaces the replicas one after the other.
    `replicas` is a number or Ray's `autoscaling_config` (`make_autoscaling`).
    """
    serve, settings = _import_ray_serve(), settings or ServeSettings()
    if not models:
        raise UsageError("model_folders_missing")
    deployed = serve.deployment(
        name="attendo",
        **({"num_replicas": replicas} if isinstance(replicas, int) else {"autoscaling_config": dict(replicas)}),
        # Requests queue in `ModelWorker`. A lower limit here would keep requests in Ray's queue that fit into the
        # batch, and would let requests wait that the worker rejects.
        max_ongoing_requests=4 * settings.max_queued,
        graceful_shutdown_timeout_s=settings.drain_seconds,
        # Ray sets the number of threads of a replica to its number of CPUs.
        ray_actor_options={"num_cpus": threads, "num_gpus": 1 if device.startswith("cuda") else 0},
    )
    folders = [each.resolve() for each in models]  # a replica has another working directory
    return deployed(
        serve.ingress(app_factory(folders, settings, device, languages, tasks, True))(HealthCheckMixin)
    ).bind()


def make_autoscaling(replicas: int, max_replicas: int | None, target_requests: int) -> dict[str, Any] | None:
    """Return Ray's `autoscaling_config`, or None for a fixed number of replicas."""
    if max_replicas is None:
        return None
    if max_replicas < replicas:
        raise UsageError("max_replicas_below_replicas", replicas=replicas, max_replicas=max_replicas)
    return {"min_replicas": replicas, "max_replicas": max_replicas, "target_ongoing_requests": target_requests}


def app_factory(
    folders: Sequence[Path],
    settings: ServeSettings,
    device: str,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
    in_ray: bool = False,
) -> Callable[[], "Replica"]:
    """Return a function that builds the application in a replica. Its closure is pickled, so it holds plain values."""
    paths, values = [str(each) for each in folders], settings.model_dump(mode="json")

    def build() -> Replica:
        from attendo.serve.app import create_app
        from attendo.serve.scheduling.registry import load_models

        models = load_models([Path(each) for each in paths], device, languages=languages, tasks=tasks)
        return Replica(create_app(models, ServeSettings(**values)), in_ray)

    return build


class Replica:
    """ASGI application that warms up before its first request and drains requests before Ray ends it."""

    def __init__(self, app: "Application", in_ray: bool = False) -> None:
        from attendo.serve.scheduling.monitoring import Watchdog

        self._app, self._watchdog = app, Watchdog(app.gateway)
        self._name, self._collector = uuid4().hex, connect_collector() if in_ray else None

    def check_health(self) -> None:
        """Raise if a worker thread has died or hangs."""
        if (fault := self._watchdog.find_fault()) is not None:
            raise fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif self._collector is not None and scope.get("path") == "/metrics":
            await self._app(scope, receive, self._replace_metrics(send))
        else:
            await self._app(scope, receive, send)

    def _replace_metrics(self, send: Send) -> Send:
        """Send the metrics of all replicas in place of those of this one, if the request is allowed to read them."""
        start: Message = {}

        async def send_all(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start["status"] == 200:
                message = {"type": "http.response.body", "body": await self._report()}
                headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
                start["headers"] = [*headers, (b"content-length", str(len(message["body"])).encode())]
            await send(start)
            await send(message)

        return send_all

    async def _report(self) -> bytes:
        """Report the metrics of this replica, and return those of all."""
        assert self._collector is not None
        text = generate_latest(self._app.gateway.metrics.registry).decode()
        found: bytes = await self._collector.report.remote(self._name, text)
        return found

    async def _report_often(self) -> None:
        while True:
            with suppress(Exception):  # the actor is started again, or Ray ends
                await self._report()
            await asyncio.sleep(REPORT_SECONDS)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        from attendo.serve.server import freeze_gc

        gateway = self._app.gateway
        await receive()
        await gateway.warm_up()
        freeze_gc()
        self._watchdog.start()  # ends the process on a fault; Ray then starts another one
        reporting = None if self._collector is None else asyncio.create_task(self._report_often())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if reporting is not None:
            reporting.cancel()
            with suppress(Exception):  # the last counts
                await self._report()
        gateway.draining = True
        await asyncio.gather(*(each.worker.drain() for each in gateway.registry.all()))
        self._watchdog.stop()
        await send({"type": "lifespan.shutdown.complete"})


class HealthCheckMixin:
    """Health check of a replica, which Ray calls every few seconds."""

    app: Replica  # set by the subclass that Ray creates

    def check_health(self) -> None:
        self.app.check_health()


def _make_settings(arguments: RayServeArguments) -> ServeSettings:
    options = {
        "allowed_hosts": (*LOOPBACK, *_split_list(arguments.hosts)),
        "keys": read_keys(arguments.key_file, os.environ.get("ATTENDO_KEYS")),
    }
    limits = ServeSettings.with_new_names(apply_changes({}, _split_list(arguments.limits)))
    settings = ServeSettings(**{**options, **limits})
    for key in settings.keys:
        check_key(key, "limits: keys")
    return settings


def _split_list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _import_ray_serve() -> Any:
    try:
        return import_module("ray.serve")
    except ModuleNotFoundError as error:
        raise UsageError("ray_package_missing", package=error.name) from None
