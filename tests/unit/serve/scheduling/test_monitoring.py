"""The health routes, and the watchdog that ends the process."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from error_codes import message
from four_models import ENGLISH, make_specs
from starlette.testclient import TestClient
from tiny import PATIENCE

from attendo.serve.app import Application, create_app
from attendo.serve.scheduling.monitoring import WATCHDOG_EXIT_CODE, Watchdog
from attendo.serve.scheduling.worker import ModelWorker
from attendo.serve.settings import ServeSettings


@pytest.fixture
def app() -> Application:
    ready_app = create_app(make_specs("forth", "back"))
    ready_app.gateway.is_warm = True
    return ready_app


def get(app: Application, path: str) -> tuple[int, Any]:
    response = TestClient(app, base_url="http://localhost").get(path)
    return response.status_code, response.json()


def test_health_returns_ok_like_libretranslate(app: Application) -> None:
    assert get(app, "/livez") == get(app, "/health") == (200, {"status": "ok"})


def test_readyz_is_200_after_warm_up() -> None:
    app = create_app(make_specs("forth", "back"))
    assert get(app, "/readyz") == (503, {"ready": False, "reason": "starting"})
    asyncio.run(_warm(app))
    assert get(app, "/readyz") == (200, {"ready": True, "reason": None})


async def _warm(app: Application) -> None:
    await app.gateway.warm_up()
    for each in app.gateway.registry.all():
        each.worker._inbox.put(None)


def test_a_draining_server_is_not_ready_and_rejects_requests(app: Application) -> None:
    app.gateway.draining = True
    assert get(app, "/readyz") == (503, {"ready": False, "reason": "draining"})
    assert get(app, "/livez")[0] == 200
    status, body = get(app, "/api/v1/models")
    assert (status, body["error"]["code"]) == (503, "draining")
    client = TestClient(app, base_url="http://localhost")
    assert client.post("/v2/document", data={}).json()["detail"] == "draining"
    for path in ("/v2/document/x", "/v2/document/x/result"):  # documents that were uploaded earlier can be fetched
        assert client.post(path, json={"document_key": "k"}).json()["detail"] == "unknown_document"


@pytest.mark.parametrize(("seconds", "status"), [(1.9, 200), (2.1, 503)])
def test_a_hanging_worker_is_not_ready(
    app: Application, monkeypatch: pytest.MonkeyPatch, seconds: float, status: int
) -> None:
    monkeypatch.setattr(ModelWorker, "seconds_since_step", seconds)
    assert get(app, "/readyz")[0] == status
    assert (get(app, "/readyz")[1]["reason"] == "hanging") == (status == 503)


def test_a_dead_worker_is_not_ready(app: Application) -> None:
    app.gateway.get_model("back").worker._died = True
    assert get(app, "/readyz") == (503, {"ready": False, "reason": "stopped"})


def wait_for_watchdog(app: Application, caplog: pytest.LogCaptureFixture) -> str:
    """The critical log message, after the watchdog has ended the process."""
    codes: list[int] = []
    ended = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    Watchdog(app.gateway, end).start()
    assert ended.wait(PATIENCE)
    assert codes == [WATCHDOG_EXIT_CODE] == [70]
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    return record.getMessage()


def test_S10_a_dead_thread_ends_the_process(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    app.gateway.get_model("back").worker._died = True
    assert wait_for_watchdog(app, caplog).startswith(message("worker_thread_died", name="back"))


def test_S10_a_hanging_thread_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    app, released = create_app(make_specs("forth"), ServeSettings(watchdog_seconds=0.05)), threading.Event()
    worker = app.gateway.get_model("forth").worker

    async def main() -> str:
        hanging = asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))
        await asyncio.sleep(0)
        text = await asyncio.to_thread(wait_for_watchdog, app, caplog)
        released.set()
        await hanging
        await worker.drain()
        return text

    text = asyncio.run(main())
    assert text.startswith(message("worker_thread_hung", name="forth", seconds=0.05))


def test_the_watchdog_ignores_a_healthy_server(app: Application) -> None:
    watchdog = Watchdog(app.gateway)
    worker = app.gateway.get_model("forth").worker

    async def main() -> None:
        await worker.generate([ENGLISH])
        assert watchdog.find_fault() is None
        await worker.drain()

    asyncio.run(main())
    watchdog.stop()
    watchdog._watch()
    assert watchdog.find_fault() is None
