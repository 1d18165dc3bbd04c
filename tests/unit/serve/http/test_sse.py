"""Server-sent event streams, and errors while streaming."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tiny import PATIENCE
from worker_helpers import wait_until

from attendo.serve.http.sse import event_stream
from attendo.serve.scheduling.scheduler import BatchLimits
from attendo.serve.scheduling.worker import ModelWorker
from attendo.text_model import TextModel


def test_an_error_is_the_last_event(small_model: TextModel, caplog: pytest.LogCaptureFixture) -> None:
    def items() -> Iterator[tuple[str, int]]:
        yield "text", 1
        raise ZeroDivisionError

    async def main() -> list[bytes]:
        worker = ModelWorker(small_model)
        events = [part async for part in event_stream(worker.iterate(items)).body_iterator]
        await worker.drain()
        return events

    first, last = asyncio.run(main())
    assert first == b"event: text\ndata: 1\n\n"
    assert last.startswith(b'event: error\ndata: {"error":{"code":"failed"')
    assert "ZeroDivisionError" in caplog.text


def test_a_full_queue_is_an_error_event(small_model: TextModel) -> None:
    async def main() -> list[bytes]:
        worker, released = ModelWorker(small_model, BatchLimits(max_queued=1)), threading.Event()
        tasks = [asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))]
        await wait_until(lambda: worker.num_running == 1)
        tasks.append(asyncio.create_task(worker.run(lambda: True)))
        await wait_until(lambda: worker.num_waiting == 1)
        events = [part async for part in event_stream(worker.iterate(lambda: iter(()))).body_iterator]
        released.set()
        await asyncio.gather(*tasks)
        await worker.drain()
        return events

    assert b'"code":"busy"' in asyncio.run(main())[0]
