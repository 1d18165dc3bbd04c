"""Exclusive jobs have threads of their own, which alternate with the batches step by step."""

import asyncio
import threading
import time
from typing import Any

import pytest
from batcher_users import LONG, asking, until
from small_server import random_model
from tiny import PATIENCE

from attendo.decode.step_hook import run_step_hook
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.background import ExclusiveJobs
from attendo.serve.scheduling.worker import BatchLimits, FairLock, ModelWorker
from attendo.text_model import TextModel

EXCLUSIVE: dict[str, Any] = {"constraints": ["猫"], "beam": 2}
ENDLESS = {"max_length": 20_000, "min_length": 20_000}


def exclusive_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "attendo-exclusive"]


def test_a_fair_lock_lets_threads_alternate() -> None:
    lock, order, started = FairLock(), list[int](), threading.Barrier(2)

    def work(number: int) -> None:
        started.wait(PATIENCE)
        with lock:
            for _ in range(200):
                order.append(number)
                until_other_waits(lock, order, 1 - number)
                lock.pass_on()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert order in ([0, 1] * 200, [1, 0] * 200)


def until_other_waits(lock: FairLock, order: list[int], other: int) -> None:
    """A thread that has not begun cannot wait yet, and one that has ended waits no more."""
    end = time.monotonic() + PATIENCE
    while not lock._waiting and order.count(other) < 200 and time.monotonic() < end:
        time.sleep(0)


def test_a_lock_that_nobody_waits_for_is_kept() -> None:
    lock = FairLock()
    with lock:
        lock.pass_on()
        assert lock._acquired
    assert not lock._acquired


def test_batches_and_an_exclusive_job_both_go_on(small_model: TextModel) -> None:
    """Steps of each come between those of the other, in two threads."""
    worker, steps = ModelWorker(small_model), list[int]()
    step = worker._scheduler.step

    def counted(now: float) -> None:
        steps.append(threading.get_ident())
        step(now)

    worker._scheduler.step = counted  # type: ignore[method-assign]

    def look() -> None:
        begun, mine = len(steps), 0
        while len(steps) < begun + 20:
            run_step_hook()
            mine += 1
        assert mine >= 15  # it waits for one step at a time
        steps.append(threading.get_ident())

    async def work() -> None:
        long = asyncio.create_task(worker.generate(["the cat"], **ENDLESS))
        await until(lambda: worker.num_running == 1)
        await worker.run(look)
        long.cancel()

    asking(worker, work())
    assert len(set(steps)) == 2


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_S7_a_running_exclusive_call_ends_between_its_steps(small_model: TextModel, end: str) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        deadline = time.monotonic() + 0.3 if end == "deadline" else None
        task = asyncio.create_task(worker.generate(["the cat"], deadline, **ENDLESS, **EXCLUSIVE))
        await until(lambda: worker.num_running == 1 or task.done())
        if end == "cancel":
            task.cancel()
        found: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        assert end == "cancel" or found.code == "too_late"
        await until(lambda: not exclusive_threads())
        assert not any(jobs.busy for jobs in worker._scheduler.exclusive_jobs)
        assert await worker.generate(["the cat"], **EXCLUSIVE)

    asking(worker, work())


def test_the_threads_end_with_their_last_job_and_start_again(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        for _ in range(3):
            assert await worker.generate(["the cat"], **EXCLUSIVE)
            assert await worker.run(lambda: 7) == 7
            await until(lambda: not exclusive_threads())
            assert worker.seconds_since_step == 0

    asking(worker, work())


def test_drain_ends_an_exclusive_call_too(small_model: TextModel) -> None:
    worker = ModelWorker(small_model, BatchLimits(drain_seconds=0.05))

    async def work() -> None:
        task = asyncio.create_task(worker.generate(["the cat"], **ENDLESS, **EXCLUSIVE))
        await until(lambda: worker.num_running == 1)
        await worker.drain()
        with pytest.raises(ApiError) as refused:
            await task
        assert refused.value.code == "draining"
        assert not exclusive_threads()

    asking(worker, work())


def test_an_exclusive_thread_that_dies_tells_everybody(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(self: ExclusiveJobs) -> None:
        raise SystemExit

    monkeypatch.setattr(ExclusiveJobs, "step", deadly)
    worker = ModelWorker(small_model)

    async def work() -> None:
        tasks = [worker.generate(["the cat"], **LONG), worker.generate(["a dog"], **EXCLUSIVE)]
        found: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.code for each in found] == ["stopped", "stopped"]
        assert not worker.is_ready

    asking(worker, work())


def test_a_network_that_was_in_training_mode_is_served_without_dropout() -> None:
    """For good: a mode that one thread restores would be wrong for another."""
    model = random_model(dropout=0.5)
    model.network.train()
    worker = ModelWorker(model)
    assert not any(module.training for module in model.network.modules())
    asyncio.run(worker.drain())
