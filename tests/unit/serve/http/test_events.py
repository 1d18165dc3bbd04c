"""Answers that come bit by bit, and trouble on the way."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from batcher_users import until
from tiny import PATIENCE

from attendo.serve.http.sse import event_stream
from attendo.serve.scheduling.scheduler import BatchLimits
from attendo.serve.scheduling.worker import ModelWorker
from attendo.text_model import TextModel


def test_trouble_in_a_stream_is_its_last_event(small_model: TextModel, caplog: pytest.LogCaptureFixture) -> None:
    def items() -> Iterator[tuple[str, int]]:
        yield "text", 1
        raise ZeroDivisionError

    async def main() -> list[bytes]:
        batcher = ModelWorker(small_model)
        told = [part async for part in event_stream(batcher.iterate(items)).body_iterator]
        await batcher.drain()
        return told

    first, last = asyncio.run(main())
    assert first == b"event: text\ndata: 1\n\n"
    assert last.startswith(b'event: error\ndata: {"error":{"code":"failed"')
    assert "ZeroDivisionError" in caplog.text


def test_a_line_that_is_full_is_told_in_the_stream(small_model: TextModel) -> None:
    async def main() -> list[bytes]:
        batcher, released = ModelWorker(small_model, BatchLimits(max_queued=1)), threading.Event()
        tasks = [asyncio.create_task(batcher.run(lambda: released.wait(PATIENCE)))]
        await until(lambda: batcher.num_running == 1)
        tasks.append(asyncio.create_task(batcher.run(lambda: True)))
        await until(lambda: batcher.num_waiting == 1)
        told = [part async for part in event_stream(batcher.iterate(lambda: iter(()))).body_iterator]
        released.set()
        await asyncio.gather(*tasks)
        await batcher.drain()
        return told

    assert b'"code":"busy"' in asyncio.run(main())[0]
