"""Limits of a worker: deadlines, cancellation, admission and draining."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tiny import PATIENCE
from worker_helpers import ENDLESS, LONG, make_sentences, run_with_worker, wait_until

from attendo.decode.continuous_batch import ContinuousBatch
from attendo.serve.http.access_log import AccessLogEntry, current_request
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling import worker as worker_module
from attendo.serve.scheduling.batches import BatchFactory
from attendo.serve.scheduling.jobs import GenerateJob, JobFailed, JobFinished, ScheduledJob
from attendo.serve.scheduling.scheduler import Scheduler
from attendo.serve.scheduling.worker import BatchLimits, ModelWorker
from attendo.text_model import TextModel


@pytest.mark.parametrize("options", [ENDLESS, ENDLESS | {"beam": 3}], ids=["greedy", "beam"])
def test_S7_a_deadline_ends_running_requests(small_model: TextModel, options: dict[str, Any]) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        with pytest.raises(ApiError) as raised:
            await worker.generate(["the cat sat"], time.monotonic() + 0.05, **options)
        assert (raised.value.code, raised.value.status_code) == ("too_late", 504)
        await wait_until(lambda: not worker._scheduler.busy)
        assert (worker.num_waiting, worker.num_running) == (0, 0)
        assert await worker.generate(["the cat sat"])

    run_with_worker(worker, work())


def test_a_deadline_ends_waiting_requests(small_model: TextModel) -> None:
    worker, released = ModelWorker(small_model), threading.Event()

    async def work() -> None:
        running = asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))
        await wait_until(lambda: worker.num_running == 1)
        late = [worker.generate(["the cat"], time.monotonic() + 0.03), worker.run(lambda: 1, time.monotonic() + 0.03)]
        found: list[Any] = await asyncio.gather(*late, return_exceptions=True)
        assert [error.code for error in found] == ["too_late", "too_late"]
        assert worker.num_waiting == 0
        assert worker.seconds_since_step > 0
        released.set()
        assert await running

    run_with_worker(worker, work())


@pytest.mark.parametrize("now", [0.0, 100.0])
def test_the_scheduler_checks_deadlines_itself(small_model: TextModel, now: float) -> None:
    """A late event loop does not keep a slot busy."""
    events: list[Any] = []
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_batch_tokens=10_000))
    scheduler.add(ScheduledJob(GenerateJob(("the cat",), LONG), events.append, deadline=50.0))
    scheduler.step(0.0)
    scheduler.step(now)
    assert scheduler.busy == (now == 0.0)
    assert [type(each) for each in events] == ([] if now == 0.0 else [JobFailed])


@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
def test_S6_cancelled_requests_free_their_slots(small_model: TextModel, static: bool) -> None:
    worker = ModelWorker(small_model, BatchLimits(max_batch_size=2), static)

    async def listen(text: str) -> None:
        async for _ in worker.stream(text, **ENDLESS):
            pass

    async def work() -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(worker.generate([text], **ENDLESS)) for text in ("the cat", "a dog", "NLP")
        ]
        tasks.append(asyncio.create_task(listen("I saw")))
        await wait_until(lambda: worker.num_running == 2)
        assert worker.num_waiting == 2
        tasks[0].cancel()
        await wait_until(lambda: worker.num_waiting == 1)
        assert worker.num_running == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (worker.num_waiting, worker.num_running) == (0, 0)
        await wait_until(lambda: not worker._scheduler.busy)
        groups = worker._scheduler._groups.values()
        assert not any(group.busy for group in groups)
        assert await worker.generate(["the cat"])

    run_with_worker(worker, work())


def test_a_full_queue_rejects_at_once(small_model: TextModel) -> None:
    worker, released = ModelWorker(small_model, BatchLimits(max_queued=2)), threading.Event()

    async def work() -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))]
        await wait_until(lambda: worker.num_running == 1)
        tasks += [asyncio.create_task(worker.generate(["the cat"])) for _ in range(2)]
        await asyncio.sleep(0)
        for call in (worker.generate(["a dog"]), anext(worker.stream("a dog")), worker.run(lambda: 1)):
            with pytest.raises(ApiError) as raised:
                await call
            assert (raised.value.code, raised.value.status_code) == ("busy", 429)
        assert worker.num_waiting == 2
        assert worker.is_full
        released.set()
        await asyncio.gather(*tasks)
        assert not worker.is_full

    run_with_worker(worker, work())


def test_a_too_long_wait_is_rejected_before_the_queue_is_full(small_model: TextModel) -> None:
    worker, released = (
        ModelWorker(small_model, BatchLimits(max_queue_seconds=1e-4, max_batch_size=1)),
        threading.Event(),
    )

    async def work() -> None:
        long = {"max_length": 40, "min_length": 40}
        await worker.generate(["the cat"], **long)  # its duration, far above 0.4 ms, is the estimate for the next ones
        await wait_until(lambda: not worker._scheduler.busy)
        blocking = asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))
        await wait_until(lambda: worker.num_running == 1)
        waiting = asyncio.create_task(worker.generate(["the dog"], **long))
        await wait_until(lambda: worker.num_waiting == 1)
        with pytest.raises(ApiError) as raised:
            await worker.generate(["a dog"])
        assert raised.value.code == "busy"
        released.set()
        await asyncio.gather(blocking, waiting)
        await wait_until(lambda: not worker._scheduler.busy)
        assert len(await worker.generate(["a dog"])) == 1  # no request is ahead

    run_with_worker(worker, work())


def test_an_admitted_request_may_make_more_calls(small_model: TextModel) -> None:
    """A long text needs several calls. The later ones wait only for earlier calls of the same request."""
    worker, released = (
        ModelWorker(small_model, BatchLimits(max_queue_seconds=1e-4, max_batch_size=1)),
        threading.Event(),
    )
    worker._scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]

    async def request(calls: int) -> None:
        current_request.set(AccessLogEntry("one"))
        await asyncio.gather(*(worker.generate(["the " * n + "cat"]) for n in range(calls)))

    async def work() -> None:
        blocking = asyncio.create_task(worker.run(released.wait))
        await wait_until(lambda: worker.num_running == 1)
        tasks = [asyncio.create_task(request(3))]
        await wait_until(lambda: worker.num_waiting == 3)
        with pytest.raises(ApiError, match="busy"):
            await request(1)
        released.set()
        await asyncio.gather(blocking, *tasks)

    run_with_worker(worker, work())


def test_alignments_are_limited(small_model: TextModel) -> None:
    worker = ModelWorker(small_model, BatchLimits(max_alignment_weights=100))

    async def work() -> None:
        assert (await worker.generate(["the cat"], alignments=True, max_length=5))[0].best.alignment is not None
        with pytest.raises(ApiError) as raised:
            await worker.generate(["the cat"] * 7, alignments=True, max_length=5)
        assert (raised.value.code, raised.value.status_code) == ("alignments_too_large", 413)
        assert len(await worker.generate(["the cat"] * 7, max_length=5)) == 7

    run_with_worker(worker, work())


@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
def test_requests_are_admitted_while_slots_are_free(small_model: TextModel, static: bool) -> None:
    """After all requests end at once, new ones may come at once, even if others still wait."""
    scheduler = Scheduler(small_model, BatchFactory(small_model, 4, static), BatchLimits(max_queue_seconds=0.5))
    jobs = [submit(scheduler, text) for text in ("the cat", "a dog", "NLP")]
    scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]
    for _ in range(2):  # before and after they start
        assert not scheduler.admission_queue.is_overloaded
        scheduler.step(0.0)
    jobs += [submit(scheduler, text) for text in ("I saw", "the", "cat")]
    scheduler.step(0.0)
    assert scheduler.admission_queue.is_overloaded
    for job in jobs[:3]:
        job.cancel()
    scheduler._remove_all(job for job in jobs if job.check_expired(0.0))
    assert (scheduler.num_waiting, scheduler.batch_size) == (2, 1)
    assert not scheduler.admission_queue.is_overloaded
    (group,) = scheduler._open_groups
    group.closing = True  # it is closed to make room for other groups
    assert scheduler.admission_queue.is_overloaded


@pytest.mark.parametrize("count", [3, 4])
def test_starting_and_finishing_requests_count_once(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A client may send its next request before the other results of the same step are delivered."""
    scheduler = Scheduler(small_model, BatchFactory(small_model, 4), BatchLimits(max_queue_seconds=0.5))
    scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]
    overloaded_after_step, overloaded_on_event = list[bool](), list[bool]()
    step = ContinuousBatch.step

    def step_and_record(self: ContinuousBatch, waiting: Any) -> Any:
        answers = step(self, waiting)
        overloaded_after_step.append(scheduler.admission_queue.is_overloaded)
        return answers

    monkeypatch.setattr(ContinuousBatch, "step", step_and_record)
    for text in ("the cat", "a dog", "NLP", "I saw")[:count]:
        submit(
            scheduler,
            text,
            lambda event: overloaded_on_event.append(scheduler.admission_queue.is_overloaded),
            max_length=2,
            min_length=2,
        )
    while scheduler.busy:
        scheduler.step(0.0)
    assert overloaded_after_step == [count == 4] * 3  # 2 tokens and EOS
    assert overloaded_on_event == [False] * count


def submit(
    scheduler: Scheduler, text: str, on_event: Callable[[Any], None] = lambda event: None, **options: int
) -> ScheduledJob:
    job = ScheduledJob(GenerateJob((text,), options or LONG), on_event)
    scheduler.admission_queue.add(job)
    scheduler.add(job)
    return job


def test_tokens_in_flight_are_bounded(small_model: TextModel) -> None:
    worker = ModelWorker(small_model, BatchLimits(max_batch_tokens=1000))

    async def work() -> None:
        alone = asyncio.create_task(worker.generate(["the cat"], **ENDLESS | {"beam": 3}))
        await wait_until(lambda: worker.num_running == 1)
        with pytest.raises(ApiError) as raised:
            await worker.generate(["the cat"], **LONG | {"beam": 2})
        assert raised.value.code == "busy"
        alone.cancel()
        assert await worker.generate(["the cat"])

    run_with_worker(worker, work())


def test_drain_finishes_requests_and_rejects_new_ones(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        tasks = [asyncio.create_task(worker.generate([text], max_length=30)) for text in make_sentences(20)]
        await asyncio.sleep(0)
        draining = asyncio.create_task(worker.drain())
        await asyncio.sleep(0)
        assert not worker.is_ready
        with pytest.raises(ApiError) as raised:
            await worker.generate(["the cat"])
        assert (raised.value.code, raised.value.status_code) == ("draining", 503)
        assert len(await asyncio.gather(*tasks)) == 20
        await draining

    run_with_worker(worker, work())


def test_drain_has_a_time_limit(small_model: TextModel) -> None:
    worker = ModelWorker(small_model, BatchLimits(drain_seconds=0.05))

    async def work() -> None:
        task = asyncio.create_task(worker.generate(["the cat"], **ENDLESS))
        await wait_until(lambda: worker.num_running == 1)
        await worker.drain()
        with pytest.raises(ApiError) as raised:
            await task
        assert raised.value.code == "draining"

    run_with_worker(worker, work())


def test_unbatched_jobs_do_not_fill_the_batch_queue(small_model: TextModel) -> None:
    """Each of the two queues has its own wait estimate."""
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_queue_seconds=0.5))
    scheduler._unbatched_queue._estimator.estimate_wait = lambda now, ahead: 9.0 * ahead  # type: ignore[method-assign]
    jobs = {
        "first": {"banned_phrases": ["zebra"]},
        "second": {"banned_phrases": ["zebra"]},
        "patient": {"mbr": "chrf"},
        "batched": {},
    }
    events: dict[str, list[Any]] = {name: [] for name in jobs}
    for name, options in jobs.items():
        job = ScheduledJob(GenerateJob(("the cat",), options), events[name].append)
        job.can_wait = name == "patient"
        scheduler.admission_queue.add(job)
        scheduler.add(job)
    assert [each.error.code for each in events["second"]] == ["busy"]
    assert (scheduler.num_waiting, scheduler.admission_queue.is_overloaded) == (3, False)
    calls, _ = scheduler.unbatched_runners
    while scheduler.busy or calls.busy:
        scheduler.step(0.0)
        calls.step()
    assert [type(events[name][-1]) for name in ("first", "patient", "batched")] == [JobFinished] * 3
    assert scheduler.num_waiting == 0


def test_all_new_jobs_are_admitted_at_the_next_step(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that stays in the inbox would count as waiting for a slot."""
    monkeypatch.setattr(worker_module, "_MAX_INTAKE_SECONDS", PATIENCE)  # a busy machine admits few in that time
    worker = ModelWorker(small_model)
    for text in make_sentences(5):
        worker._inbox.put(ScheduledJob(GenerateJob((text,), LONG), lambda event: None))
    worker._inbox.put(None)  # end after all jobs
    worker._step_batches()
    assert (worker._ended, worker._inbox.qsize(), worker.batch_size) == (True, 0, 5)


def test_models_without_batching_have_one_queue(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFactory, "supports_batching", False)  # as for an exported model
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_queue_seconds=0.5))
    job = ScheduledJob(GenerateJob(("the cat",), {}), lambda event: None)
    scheduler.admission_queue.add(job)
    scheduler._unbatched_queue._estimator.estimate_wait = lambda now, ahead: 1e9  # type: ignore[method-assign]
    scheduler.add(job)
    assert (scheduler.num_waiting, scheduler.admission_queue.jobs, job.finished) == (1, {job}, False)


def test_a_cancelled_job_waits_in_no_queue() -> None:
    one, other = set[ScheduledJob](), set[ScheduledJob]()
    job = ScheduledJob(GenerateJob((), {}), lambda event: None)
    job.wait_in(one)
    job.wait_in(other)
    assert (one, other) == (set(), {job})
    job.cancel()
    job.wait_in(one)
    assert (one, other) == (set(), set())
