"""Computing beside the event loop: one thing at a time for each model."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from attendo.serve.errors import Refusal

T = TypeVar("T")


class Worker:
    """A thread with a line in front of it, which has an end. Whoever leaves while in line is not computed for."""

    def __init__(self, most_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attendo-model")
        self._most, self._waiting = most_waiting, 0

    async def run(self, work: Callable[[], T]) -> T:
        if self._waiting >= self._most:
            raise Refusal("busy", waiting=self._waiting)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1

    async def each(self, work: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """What an iterator gives, as it comes. It is stopped at its next item when nobody listens any more."""
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Any] = asyncio.Queue()
        unheard, end = threading.Event(), object()

        def tell(item: Any) -> None:
            if not unheard.is_set():
                loop.call_soon_threadsafe(items.put_nowait, item)

        def iterate() -> None:
            try:
                for item in work():
                    tell(item)
                    if unheard.is_set():
                        return
            finally:
                tell(end)

        working = asyncio.ensure_future(self.run(iterate))
        # A refusal comes before the first item: then nobody would put the end.
        working.add_done_callback(lambda _: items.put_nowait(end))
        try:
            while (item := await items.get()) is not end:
                yield item
            await working
        finally:
            unheard.set()
            working.cancel()
