"""Ray Serve deployment: replicas of the server on one or several machines with one address."""

import asyncio
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.types import Receive, Scope, Send

from attendo.errors import UsageError
from attendo.runs.config import apply_changes
from attendo.serve.http.auth import check_key, read_keys
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
    replicas: int = Field(1, ge=1)
    device: str = Field("cpu", description="cpu, or cuda for one GPU per replica")
    threads: int = Field(1, ge=1, description="CPU threads per replica")


def application(arguments: RayServeArguments) -> Any:
    """Build the application for Ray's command line. Keys are read here, from the file and ATTENDO_KEYS."""
    return deployment(
        [Path(each) for each in _split_list(arguments.models)],
        _make_settings(arguments),
        arguments.replicas,
        arguments.device,
        arguments.threads,
        _split_list(arguments.languages),
        _split_list(arguments.tasks),
    )


def deployment(
    models: Sequence[Path],
    settings: ServeSettings | None = None,
    replicas: int = 1,
    device: str = "cpu",
    threads: int = 1,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Any:
    """Return an application for `ray.serve.run`. Every replica loads all models in its own process."""
    serve, settings = _import_ray_serve(), settings or ServeSettings()
    if not models:
        raise UsageError("model_folders_missing")
    deployed = serve.deployment(
        name="attendo",
        num_replicas=replicas,
        # Requests queue in `ModelWorker`. A lower limit here would keep requests in Ray's queue that fit into the
        # batch, and would let requests wait that the worker rejects.
        max_ongoing_requests=4 * settings.max_queued,
        graceful_shutdown_timeout_s=settings.drain_seconds,
        # Ray sets the number of threads of a replica to its number of CPUs.
        ray_actor_options={"num_cpus": threads, "num_gpus": 1 if device.startswith("cuda") else 0},
    )
    folders = [each.resolve() for each in models]  # a replica has another working directory
    return deployed(serve.ingress(app_factory(folders, settings, device, languages, tasks))(HealthCheckMixin)).bind()


def app_factory(
    folders: Sequence[Path],
    settings: ServeSettings,
    device: str,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> Callable[[], "Replica"]:
    """Return a function that builds the application in a replica. Its closure is pickled, so it holds plain values."""
    paths, values = [str(each) for each in folders], settings.model_dump(mode="json")

    def build() -> Replica:
        from attendo.serve.app import create_app
        from attendo.serve.scheduling.registry import load_models

        models = load_models([Path(each) for each in paths], device, languages=languages, tasks=tasks)
        return Replica(create_app(models, ServeSettings(**values)))

    return build


class Replica:
    """ASGI application that warms up before its first request and drains requests before Ray ends it."""

    def __init__(self, app: "Application") -> None:
        from attendo.serve.scheduling.monitoring import Watchdog

        self._app, self._watchdog = app, Watchdog(app.gateway)

    def check_health(self) -> None:
        """Raise if a worker thread has died or hangs."""
        if (fault := self._watchdog.find_fault()) is not None:
            raise fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        from attendo.serve.server import freeze_gc

        gateway = self._app.gateway
        await receive()
        await gateway.warm_up()
        freeze_gc()
        self._watchdog.start()  # ends the process on a fault; Ray then starts another one
        await send({"type": "lifespan.startup.complete"})
        await receive()
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
