"""Puts a load on a server and tells what became of every request."""

import asyncio
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attendo.recipes.bench_serving.asking import Asker, Outcome, Patience
from attendo.recipes.bench_serving.load import Load, Planned
from attendo.recipes.bench_serving.shapes import Shape
from attendo.recipes.bench_serving.wire import Wire


async def loaded(wire: Wire, shape: Shape, texts: Sequence[str], load: Load) -> list[Outcome]:
    """In the order in which they were due. Ends when the last has its answer, or has given up."""
    found: list[Outcome] = []

    async def one(planned: Planned, due: float) -> None:
        patience = Patience(load.deadline, planned.leaves_after)
        found.append(await asker.ask(texts[planned.text], due, patience, planned.text))

    with _undisturbed():
        asker = Asker(wire, shape)
        await (_open_loop if load.rate is not None else _closed_loop)(asker, load, len(texts), one)
    return sorted(found, key=lambda each: each.due)


async def answers(wire: Wire, shape: Shape, texts: Sequence[str], clients: int, deadline: float) -> list[Outcome]:
    """Every text once, in order, by so many clients at the same time."""
    asker, found, waiting = Asker(wire, shape), dict[int, Outcome](), list(enumerate(texts))[::-1]

    async def client() -> None:
        while waiting:
            number, text = waiting.pop()
            found[number] = await asker.ask(text, asker.now, Patience(deadline), number)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[number] for number in range(len(texts))]


One = Callable[[Planned, float], Any]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Python looks through all that there is now and then, which takes it 0.1 s where torch is loaded: time in which
    answers lie unread and requests unsent, and which would count as the server's. What nobody needs any more waits."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _open_loop(asker: Asker, load: Load, texts: int, one: One) -> None:
    async with asyncio.TaskGroup() as group:
        for planned in load.plans(texts):
            if (wait := planned.at - asker.now) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(planned, planned.at))


async def _closed_loop(asker: Asker, load: Load, texts: int, one: One) -> None:
    plans = load.plans(texts)

    async def client() -> None:
        while (now := asker.now) < load.seconds:
            await one(next(plans), now)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.clients or 1):
            group.create_task(client())
