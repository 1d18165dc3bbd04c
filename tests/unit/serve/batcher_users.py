"""Those who ask a batcher: in an event loop of their own, of which nothing is left behind."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tiny import PATIENCE, SOURCES

from attendo.serve.scheduling.worker import ModelWorker

T = TypeVar("T")
WORDS = sorted({word for text in SOURCES for word in text.split()})
LONG = {"max_length": 400, "min_length": 400}  # a request that runs until it is told to stop


def sentences(count: int, longest: int = 9) -> list[str]:
    dice = random.Random(1)
    return [" ".join(dice.choices(WORDS, k=dice.randint(1, longest))) for _ in range(count)]


def asking(batcher: ModelWorker, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, with the batcher drained behind it and nothing left of either."""

    async def main() -> T:
        try:
            return await asyncio.wait_for(work, PATIENCE)
        finally:
            await batcher.drain()
            assert len(asyncio.all_tasks()) == 1

    before = {*threading.enumerate()}  # those of other tests may end meanwhile
    found = asyncio.run(main())
    assert {*threading.enumerate()} <= before
    return found


async def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, "it never came to be so"
        await asyncio.sleep(0.005)
