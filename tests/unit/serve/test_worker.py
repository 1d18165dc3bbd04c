"""One thing at a time, beside the event loop, and nothing for nobody."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from attendo.serve.errors import Refusal
from attendo.serve.events import event_stream
from attendo.serve.worker import Worker


def test_work_is_done_one_after_the_other_while_the_loop_goes_on() -> None:
    inside, together, turns = 0, [], 0

    def work() -> int:
        nonlocal inside
        inside += 1
        together.append(inside)
        released.wait(5)
        inside -= 1
        return threading.get_ident()

    async def main() -> None:
        nonlocal turns
        worker = Worker(8)
        tasks = [asyncio.create_task(worker.run(work)) for _ in range(3)]
        for _ in range(20):
            await asyncio.sleep(0)
            turns += 1
        released.set()
        threads = await asyncio.gather(*tasks)
        assert len(set(threads)) == 1
        assert threads[0] != threading.get_ident()

    released = threading.Event()
    asyncio.run(main())
    assert (together, turns) == ([1, 1, 1], 20)


def test_the_line_has_an_end() -> None:
    async def main() -> None:
        worker, released = Worker(2), threading.Event()
        tasks = [asyncio.create_task(worker.run(lambda: released.wait(5))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await worker.run(lambda: None)
        assert (refused.value.status_code, refused.value.code) == (429, "busy")
        released.set()
        await asyncio.gather(*tasks)
        assert await worker.run(lambda: 5) == 5

    asyncio.run(main())


def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    async def main() -> list[str]:
        worker, released, done = Worker(4), threading.Event(), list[str]()
        first = asyncio.create_task(worker.run(lambda: released.wait(5)))
        await asyncio.sleep(0)
        second = asyncio.create_task(worker.run(lambda: done.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        released.set()
        await first
        await worker.run(lambda: done.append("third"))
        return done

    assert asyncio.run(main()) == ["third"]


def test_items_come_as_they_are_made_and_stop_when_nobody_listens() -> None:
    made: list[int] = []
    heard, ended = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        try:
            for number in range(1000):
                made.append(number)
                yield number
                if number:
                    heard.wait(5)
        finally:
            ended.set()

    async def main() -> None:
        worker = Worker(4)
        listening = worker.each(items)
        assert await anext(listening) == 0
        await listening.aclose()
        heard.set()
        await worker.run(lambda: None)

    asyncio.run(main())
    assert ended.is_set()
    assert len(made) < 10


def test_trouble_in_a_stream_is_its_last_event(caplog: pytest.LogCaptureFixture) -> None:
    def items() -> Iterator[tuple[str, int]]:
        yield "text", 1
        raise ZeroDivisionError

    async def main() -> list[bytes]:
        return [part async for part in event_stream(Worker(4).each(items)).body_iterator]

    first, last = asyncio.run(main())
    assert first == b"event: text\ndata: 1\n\n"
    assert last.startswith(b'event: error\ndata: {"error":{"code":"failed"')
    assert "ZeroDivisionError" in caplog.text


def test_a_line_that_is_full_is_told_in_the_stream() -> None:
    async def main() -> list[bytes]:
        worker, released = Worker(1), threading.Event()
        task = asyncio.create_task(worker.run(lambda: released.wait(5)))
        await asyncio.sleep(0)
        told = [part async for part in event_stream(worker.each(lambda: iter(()))).body_iterator]
        released.set()
        await task
        return told

    assert b'"code":"busy"' in asyncio.run(main())[0]
