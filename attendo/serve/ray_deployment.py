"""The same server as a deployment of Ray Serve: replicas on one or several machines behind one address."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.types import Receive, Scope, Send

from attendo.errors import UsageError
from attendo.serve.settings import LOOPBACK, ServeSettings
from attendo.settings import Settings

if TYPE_CHECKING:
    from attendo.serve.guard import Guard


class Arguments(Settings):
    """What `serve run attendo.serve.ray_deployment:application NAME=VALUE ...` takes."""

    models: str = Field(description="model folders with commas between them, by paths that every machine has")
    hosts: str = Field("", description="names beside those of this machine that requests may call the server by")
    languages: str = Field("", description="such as en-zh, one for each model, where the folders do not tell")
    replicas: int = Field(1, ge=1)
    device: str = Field("cpu", description="cpu, or cuda for a GPU of its own for each replica")
    threads: int = Field(1, ge=1, description="CPU threads of each replica")


def application(arguments: Arguments) -> Any:
    """What Ray's command line runs."""
    return deployment(
        [Path(each) for each in _parts(arguments.models)],
        ServeSettings(hosts=(*LOOPBACK, *(each.lower() for each in _parts(arguments.hosts)))),
        arguments.replicas,
        arguments.device,
        arguments.threads,
        _parts(arguments.languages),
    )


def deployment(
    models: Sequence[Path],
    settings: ServeSettings | None = None,
    replicas: int = 1,
    device: str = "cpu",
    threads: int = 1,
    languages: Sequence[str] = (),
) -> Any:
    """An application for `ray.serve.run`. Every replica reads the folders itself and has all models in its process."""
    serve, settings = _ray_serve(), settings or ServeSettings()
    if not models:
        raise UsageError("models are missing: name at least one model folder")
    deployed = serve.deployment(
        name="attendo",
        num_replicas=replicas,
        # The queue with its limits is that of our batcher. Ray's own would keep requests from it that could have a
        # place in the batch, and would let them wait where ours refuses them.
        max_ongoing_requests=4 * settings.waiting,
        graceful_shutdown_timeout_s=settings.drain_seconds,
        # Ray gives a replica as many threads as it has CPUs.
        ray_actor_options={"num_cpus": threads, "num_gpus": 1 if device.startswith("cuda") else 0},
    )
    folders = [each.resolve() for each in models]  # a replica runs in another folder
    return deployed(serve.ingress(builder(folders, settings, device, languages))()).bind()


def builder(
    folders: Sequence[Path], settings: ServeSettings, device: str, languages: Sequence[str]
) -> Callable[[], "Replica"]:
    """A function that makes the application in the process of a replica; only what it holds travels there."""
    places, values = [str(each) for each in folders], settings.model_dump(mode="json")

    def build() -> Replica:
        from attendo.serve.app import create_app
        from attendo.serve.starting import opened

        models = opened([Path(each) for each in places], device, languages=languages)
        return Replica(create_app(models, ServeSettings(**values)))

    return build


class Replica:
    """The application, which answers once before Ray asks it, and finishes what is there before Ray ends it."""

    def __init__(self, app: "Guard") -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        office = self._app.office
        await receive()
        await office.warm_up()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        office.draining = True
        await asyncio.gather(*(each.batcher.drain() for each in office.shelf.all()))
        await send({"type": "lifespan.shutdown.complete"})


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _ray_serve() -> Any:
    try:
        return import_module("ray.serve")
    except ModuleNotFoundError as error:
        raise UsageError(f"a deployment needs {error.name}: pip install 'attendo[ray]'") from None
