"""The event loop goes first now and then: what is ready in it is handled before a thread goes on."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from tiny import PATIENCE

from attendo.serve.scheduling.worker import EventLoopYielder


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn each time, however little was computed; and one that lasts, however busy the machine is."""
    monkeypatch.setattr("attendo.serve.scheduling.worker._YIELD_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("attendo.serve.scheduling.worker._MAX_YIELD_SECONDS", 30.0)


def computing(turns: EventLoopYielder, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    turns.loop = asyncio.get_running_loop()
    thread.start()
    return thread


@pytest.mark.usefixtures("often")
def test_what_is_ready_is_handled_first() -> None:
    told: list[str] = []

    async def main() -> None:
        turns = EventLoopYielder()

        def work() -> None:
            turns.yield_now()
            told.append("computed")

        thread = computing(turns, work)
        asyncio.get_running_loop().call_soon(told.append, "handled")
        time.sleep(0.05)  # the loop is busy, and the thread has long begun
        told.append("was busy")
        while thread.is_alive():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert told == ["was busy", "handled", "computed"]


def test_a_loop_that_is_busy_is_not_waited_for_without_end() -> None:
    async def main() -> None:
        turns = EventLoopYielder()
        time.sleep(0.01)
        computing(turns, turns.yield_now).join(PATIENCE)  # in which the loop can do nothing
        assert {*threading.enumerate()} <= before

    before = {*threading.enumerate()}
    asyncio.run(main())


@pytest.mark.usefixtures("often")
def test_nobody_waits_for_a_loop_that_is_gone() -> None:
    turns = EventLoopYielder()
    turns.yield_now()
    turns.loop = asyncio.new_event_loop()
    turns.loop.close()
    turns.yield_now()


def test_the_loop_has_no_turn_before_something_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.scheduling.worker._YIELD_INTERVAL_SECONDS", 1800.0)
    turns, woken = EventLoopYielder(), list[object]()

    class Loop:
        def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
            woken.append(callback)
            callback()

    turns.loop = Loop()  # type: ignore[assignment]
    turns.yield_now()
    assert not woken
    turns._last_yield = time.monotonic() - 3600
    turns.yield_now()
    assert len(woken) == 1
