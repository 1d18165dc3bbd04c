"""`EventLoopYielder`: ready callbacks of the event loop run before a computing thread continues."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from tiny import PATIENCE

from attendo.serve.scheduling.worker import EventLoopYielder


@pytest.fixture
def yield_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yields on every call, for up to 30 seconds on a busy machine."""
    monkeypatch.setattr("attendo.serve.scheduling.worker._YIELD_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("attendo.serve.scheduling.worker._MAX_YIELD_SECONDS", 30.0)


def start_thread(yielder: EventLoopYielder, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    yielder.loop = asyncio.get_running_loop()
    thread.start()
    return thread


@pytest.mark.usefixtures("yield_always")
def test_ready_callbacks_run_first() -> None:
    order: list[str] = []

    async def main() -> None:
        yielder = EventLoopYielder()

        def work() -> None:
            yielder.yield_now()
            order.append("computed")

        thread = start_thread(yielder, work)
        asyncio.get_running_loop().call_soon(order.append, "handled")
        time.sleep(0.05)  # the loop is busy, and the thread has started
        order.append("was busy")
        while thread.is_alive():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert order == ["was busy", "handled", "computed"]


def test_the_wait_for_a_busy_loop_is_limited() -> None:
    async def main() -> None:
        yielder = EventLoopYielder()
        time.sleep(0.01)
        start_thread(yielder, yielder.yield_now).join(PATIENCE)  # the loop is blocked meanwhile
        assert {*threading.enumerate()} <= before

    before = {*threading.enumerate()}
    asyncio.run(main())


@pytest.mark.usefixtures("yield_always")
def test_a_closed_loop_is_not_waited_for() -> None:
    yielder = EventLoopYielder()
    yielder.yield_now()
    yielder.loop = asyncio.new_event_loop()
    yielder.loop.close()
    yielder.yield_now()


def test_no_yield_before_the_interval_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.scheduling.worker._YIELD_INTERVAL_SECONDS", 1800.0)
    yielder, callbacks = EventLoopYielder(), list[object]()

    class Loop:
        def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
            callbacks.append(callback)
            callback()

    yielder.loop = Loop()  # type: ignore[assignment]
    yielder.yield_now()
    assert not callbacks
    yielder._last_yield = time.monotonic() - 3600
    yielder.yield_now()
    assert len(callbacks) == 1
