"""Objects created before the first request are frozen, so garbage collection skips them while requests run."""

import asyncio
import gc
import signal
from collections.abc import Iterator

import pytest
import uvicorn
from small_server import random_model
from starlette.types import Message

from attendo.serve import server as running
from attendo.serve.app import Application, create_app
from attendo.serve.ray_serve import Replica
from attendo.serve.scheduling.monitoring import Watchdog
from attendo.serve.scheduling.registry import ModelSpec

MIN_FROZEN = 10_000  # objects; importing torch alone creates many more


@pytest.fixture
def app() -> Iterator[Application]:
    gc.unfreeze()
    yield create_app([ModelSpec("small", random_model())])
    gc.unfreeze()


@pytest.mark.slow
def test_a_server_freezes_startup_objects(app: Application) -> None:
    frozen: list[int] = []

    def on_ready() -> None:
        frozen.append(gc.get_freeze_count())
        server.handle_exit(signal.SIGINT, None)

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    server = running._Server(config, app, Watchdog(app.gateway), on_ready)
    with running.bind("127.0.0.1", 0) as bound:
        server.run(sockets=[bound.socket])
    assert frozen[0] > MIN_FROZEN


@pytest.mark.slow
def test_a_replica_freezes_startup_objects(app: Application) -> None:
    sent: list[tuple[str, int]] = []

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        sent.append((message["type"], gc.get_freeze_count()))

    asyncio.run(Replica(app)({"type": "lifespan"}, receive, send))
    assert sent[0][0] == "lifespan.startup.complete"
    assert sent[0][1] > MIN_FROZEN
