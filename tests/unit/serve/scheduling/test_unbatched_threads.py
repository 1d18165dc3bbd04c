"""Unbatched jobs run in their own threads, which alternate with the batches step by step."""

import asyncio
import threading
import time
from typing import Any

import pytest
from small_server import random_model
from tiny import PATIENCE
from worker_helpers import ENDLESS, run_with_worker, wait_until

from attendo.decode.search import run_step_hook
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.unbatched import UnbatchedJobRunner
from attendo.serve.scheduling.worker import BatchLimits, FairLock, ModelWorker
from attendo.text_model import TextModel

UNBATCHED: dict[str, Any] = {"constraints": ["猫"], "beam": 2}


def unbatched_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "attendo-unbatched"]


def test_a_fair_lock_lets_threads_alternate() -> None:
    lock, order, started = FairLock(), list[int](), threading.Barrier(2)

    def work(number: int) -> None:
        started.wait(PATIENCE)
        with lock:
            for _ in range(200):
                order.append(number)
                wait_for_other(lock, order, 1 - number)
                lock.pass_on()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert order in ([0, 1] * 200, [1, 0] * 200)


def wait_for_other(lock: FairLock, order: list[int], other: int) -> None:
    """Returns when the other thread waits for the lock or has finished."""
    end = time.monotonic() + PATIENCE
    while not lock._waiting and order.count(other) < 200 and time.monotonic() < end:
        time.sleep(0)


def test_an_uncontended_lock_is_not_passed_on() -> None:
    lock = FairLock()
    with lock:
        lock.pass_on()
        assert lock._acquired
    assert not lock._acquired


def test_batches_and_unbatched_jobs_alternate(small_model: TextModel) -> None:
    """The steps of both interleave, in two threads."""
    worker, steps = ModelWorker(small_model), list[int]()
    step = worker._scheduler.step

    def step_and_count(now: float) -> None:
        steps.append(threading.get_ident())
        step(now)

    worker._scheduler.step = step_and_count  # type: ignore[method-assign]

    def poll() -> None:
        start, polls = len(steps), 0
        while len(steps) < start + 20:
            run_step_hook()
            polls += 1
        assert polls >= 15  # it waits for one step at a time
        steps.append(threading.get_ident())

    async def work() -> None:
        long = asyncio.create_task(worker.generate(["the cat"], **ENDLESS))
        await wait_until(lambda: worker.num_running == 1)
        await worker.run(poll)
        long.cancel()

    run_with_worker(worker, work())
    assert len(set(steps)) == 2


@pytest.mark.parametrize("end", ["deadline", "cancel"])
def test_S7_a_running_unbatched_call_ends_between_its_steps(small_model: TextModel, end: str) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        deadline = time.monotonic() + 0.3 if end == "deadline" else None
        task = asyncio.create_task(worker.generate(["the cat"], deadline, **ENDLESS, **UNBATCHED))
        await wait_until(lambda: worker.num_running == 1 or task.done())
        if end == "cancel":
            task.cancel()
        found: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        assert end == "cancel" or found.code == "too_late"
        await wait_until(lambda: not unbatched_threads())
        assert not any(jobs.busy for jobs in worker._scheduler.unbatched_runners)
        assert await worker.generate(["the cat"], **UNBATCHED)

    run_with_worker(worker, work())


def test_unbatched_threads_stop_and_restart(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        for _ in range(3):
            assert await worker.generate(["the cat"], **UNBATCHED)
            assert await worker.run(lambda: 7) == 7
            await wait_until(lambda: not unbatched_threads())
            assert worker.seconds_since_step == 0

    run_with_worker(worker, work())


def test_drain_ends_unbatched_calls(small_model: TextModel) -> None:
    worker = ModelWorker(small_model, BatchLimits(drain_seconds=0.05))

    async def work() -> None:
        task = asyncio.create_task(worker.generate(["the cat"], **ENDLESS, **UNBATCHED))
        await wait_until(lambda: worker.num_running == 1)
        await worker.drain()
        with pytest.raises(ApiError) as raised:
            await task
        assert raised.value.code == "draining"
        assert not unbatched_threads()

    run_with_worker(worker, work())


def test_a_dead_unbatched_thread_fails_all_requests(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: UnbatchedJobRunner) -> None:
        raise SystemExit

    monkeypatch.setattr(UnbatchedJobRunner, "step", die)
    worker = ModelWorker(small_model)

    async def work() -> None:
        tasks = [worker.generate(["the cat"], **ENDLESS), worker.generate(["a dog"], **UNBATCHED)]
        found: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.code for each in found] == ["stopped", "stopped"]
        assert not worker.is_ready

    run_with_worker(worker, work())


def test_a_network_in_training_mode_is_served_without_dropout() -> None:
    """The mode stays changed, because a thread that restores it would break other threads."""
    model = random_model(dropout=0.5)
    model.network.train()
    worker = ModelWorker(model)
    assert not any(module.training for module in model.network.modules())
    asyncio.run(worker.drain())
