"""Whether a server runs, whether it should be asked, and what ends it."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from error_codes import message
from polyglot import ENGLISH, served
from starlette.testclient import TestClient
from tiny import PATIENCE

from attendo.serve.app import create_app
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.scheduling.health import WATCHDOG_EXIT_CODE, Watchdog
from attendo.serve.scheduling.worker import ModelWorker
from attendo.serve.settings import ServeSettings


@pytest.fixture
def app() -> RequestGuard:
    made = create_app(served("forth", "back"))
    made.gateway.is_warm = True
    return made


def asked(app: RequestGuard, path: str) -> tuple[int, Any]:
    answered = TestClient(app, base_url="http://localhost").get(path)
    return answered.status_code, answered.json()


def test_a_server_that_runs_says_so_as_LibreTranslate_does(app: RequestGuard) -> None:
    assert asked(app, "/livez") == asked(app, "/health") == (200, {"status": "ok"})


def test_it_is_ready_when_every_model_has_answered_once() -> None:
    app = create_app(served("forth", "back"))
    assert asked(app, "/readyz") == (503, {"ready": False, "reason": "starting"})
    asyncio.run(_warm(app))
    assert asked(app, "/readyz") == (200, {"ready": True, "reason": None})


async def _warm(app: RequestGuard) -> None:
    await app.gateway.warm_up()
    for each in app.gateway.registry.all():
        each.worker._inbox.put(None)


def test_one_that_ends_is_not_to_be_asked_and_takes_nothing_new(app: RequestGuard) -> None:
    app.gateway.draining = True
    assert asked(app, "/readyz") == (503, {"ready": False, "reason": "draining"})
    assert asked(app, "/livez")[0] == 200
    status, told = asked(app, "/api/v1/models")
    assert (status, told["error"]["code"]) == (503, "draining")
    client = TestClient(app, base_url="http://localhost")
    assert client.post("/v2/document", data={}).json()["detail"] == "draining"
    for path in ("/v2/document/x", "/v2/document/x/result"):  # those that were brought before can be fetched
        assert client.post(path, json={"document_key": "k"}).json()["detail"] == "unknown_document"


@pytest.mark.parametrize(("seconds", "status"), [(1.9, 200), (2.1, 503)])
def test_one_that_does_not_move_while_somebody_waits_is_not_to_be_asked(
    app: RequestGuard, monkeypatch: pytest.MonkeyPatch, seconds: float, status: int
) -> None:
    monkeypatch.setattr(ModelWorker, "seconds_since_step", seconds)
    assert asked(app, "/readyz")[0] == status
    assert (asked(app, "/readyz")[1]["reason"] == "hanging") == (status == 503)


def test_one_whose_thread_died_is_not_to_be_asked(app: RequestGuard) -> None:
    app.gateway.get_model("back").worker._died = True
    assert asked(app, "/readyz") == (503, {"ready": False, "reason": "stopped"})


def ended(app: RequestGuard, caplog: pytest.LogCaptureFixture) -> str:
    """The line in the log, once the watchdog has ended the process."""
    codes: list[int] = []
    gone = threading.Event()

    def end(code: int) -> None:
        codes.append(code)
        gone.set()

    Watchdog(app.gateway, end).start()
    assert gone.wait(PATIENCE)
    assert codes == [WATCHDOG_EXIT_CODE] == [70]
    (record,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    return record.getMessage()


def test_S10_a_thread_that_died_ends_the_process(app: RequestGuard, caplog: pytest.LogCaptureFixture) -> None:
    app.gateway.get_model("back").worker._died = True
    assert ended(app, caplog).startswith(message("worker_thread_died", name="back"))


def test_S10_a_thread_that_hangs_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    app, released = create_app(served("forth"), ServeSettings(watchdog_seconds=0.05)), threading.Event()
    batcher = app.gateway.get_model("forth").worker

    async def main() -> str:
        hanging = asyncio.create_task(batcher.run(lambda: released.wait(PATIENCE)))
        await asyncio.sleep(0)
        told = await asyncio.to_thread(ended, app, caplog)
        released.set()
        await hanging
        await batcher.drain()
        return told

    told = asyncio.run(main())
    assert told.startswith(message("worker_thread_hung", name="forth", seconds=0.05))


def test_a_server_where_all_goes_well_is_left_alone(app: RequestGuard) -> None:
    watchdog = Watchdog(app.gateway)
    batcher = app.gateway.get_model("forth").worker

    async def main() -> None:
        await batcher.generate([ENGLISH])
        assert watchdog.find_fault() is None
        await batcher.drain()

    asyncio.run(main())
    watchdog.stop()
    watchdog._watch()
    assert watchdog.find_fault() is None
