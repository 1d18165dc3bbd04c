"""Runs requests on a `ModelWorker` in an event loop and checks that no task or thread is left."""

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
LONG = {"max_length": 400, "min_length": 400}  # more steps than a test runs; several fit into one batch
ENDLESS = {"max_length": 2000, "min_length": 2000}  # runs for seconds, until it is cancelled or its deadline passes


def make_sentences(count: int, longest: int = 9) -> list[str]:
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def run_with_worker(worker: ModelWorker, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Drains the worker and checks that no task and no thread is left."""

    async def main() -> T:
        try:
            return await asyncio.wait_for(work, PATIENCE)
        finally:
            await worker.drain()
            assert len(asyncio.all_tasks()) == 1

    before = {*threading.enumerate()}  # threads of other tests may end meanwhile
    result = asyncio.run(main())
    assert {*threading.enumerate()} <= before
    return result


async def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition was never met"
        await asyncio.sleep(0.005)
