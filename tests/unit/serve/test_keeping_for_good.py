"""What a server has before its first request is looked through once, not again and again while others wait."""

import asyncio
import gc
import signal
from collections.abc import Iterator

import pytest
import uvicorn
from small_server import random_model
from starlette.types import Message

from attendo.serve import server as running
from attendo.serve.app import create_app
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.ray_serve import Replica
from attendo.serve.scheduling.health import Watchdog
from attendo.serve.scheduling.registry import ModelSpec

MODULES = 10_000  # objects that there are many more of, as soon as torch is imported


@pytest.fixture
def app() -> Iterator[RequestGuard]:
    gc.unfreeze()
    yield create_app([ModelSpec("small", random_model())])
    gc.unfreeze()


@pytest.mark.slow
def test_of_a_server(app: RequestGuard) -> None:
    kept: list[int] = []

    def begun() -> None:
        kept.append(gc.get_freeze_count())
        server.handle_exit(signal.SIGINT, None)

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    server = running._Server(config, app, Watchdog(app.gateway), begun)
    with running.bind("127.0.0.1", 0) as place:
        server.run(sockets=[place.socket])
    assert kept[0] > MODULES


@pytest.mark.slow
def test_of_a_replica(app: RequestGuard) -> None:
    sent: list[tuple[str, int]] = []

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        sent.append((message["type"], gc.get_freeze_count()))

    asyncio.run(Replica(app)({"type": "lifespan"}, receive, send))
    assert sent[0][0] == "lifespan.startup.complete"
    assert sent[0][1] > MODULES
