"""What a batcher does not do: go on past a deadline, for nobody, without end, or after it was told to stop."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from batcher_users import LONG, asking, sentences, until
from tiny import PATIENCE

from attendo.decode.continuous_batch import ContinuousBatch
from attendo.serve.http.access_log import AccessLogEntry, current_request
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling import worker
from attendo.serve.scheduling.batches import BatchFactory
from attendo.serve.scheduling.jobs import GenerateJob, JobFailed, JobFinished, ScheduledJob
from attendo.serve.scheduling.scheduler import Scheduler
from attendo.serve.scheduling.worker import BatchLimits, ModelWorker
from attendo.text_model import TextModel


@pytest.mark.parametrize("options", [LONG, LONG | {"beam": 3}], ids=["greedy", "beam"])
def test_S7_a_deadline_ends_what_runs(small_model: TextModel, options: dict[str, Any]) -> None:
    batcher = ModelWorker(small_model)

    async def work() -> None:
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["the cat sat"], time.monotonic() + 0.05, **options | {"max_length": 5000})
        assert (refused.value.code, refused.value.status_code) == ("too_late", 504)
        await until(lambda: not batcher._scheduler.busy)
        assert (batcher.num_waiting, batcher.num_running) == (0, 0)
        assert await batcher.generate(["the cat sat"])

    asking(batcher, work())


def test_a_deadline_ends_what_waits_and_what_cannot_be_interrupted(small_model: TextModel) -> None:
    batcher, released = ModelWorker(small_model), threading.Event()

    async def work() -> None:
        running = asyncio.create_task(batcher.run(lambda: released.wait(PATIENCE)))
        await until(lambda: batcher.num_running == 1)
        late = [batcher.generate(["the cat"], time.monotonic() + 0.03), batcher.run(lambda: 1, time.monotonic() + 0.03)]
        found: list[Any] = await asyncio.gather(*late, return_exceptions=True)
        assert [error.code for error in found] == ["too_late", "too_late"]
        assert batcher.num_waiting == 0
        assert batcher.seconds_since_step > 0
        released.set()
        assert await running

    asking(batcher, work())


@pytest.mark.parametrize("now", [0.0, 100.0])
def test_the_thread_looks_at_deadlines_itself(small_model: TextModel, now: float) -> None:
    """An event loop that is late does not keep a slot busy."""
    heard: list[Any] = []
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_batch_tokens=10_000))
    scheduler.add(ScheduledJob(GenerateJob(("the cat",), LONG), heard.append, deadline=50.0))
    scheduler.step(0.0)
    scheduler.step(now)
    assert scheduler.busy == (now == 0.0)
    assert [type(each) for each in heard] == ([] if now == 0.0 else [JobFailed])


@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
def test_S6_whoever_is_cancelled_leaves_a_free_place(small_model: TextModel, fixed: bool) -> None:
    batcher = ModelWorker(small_model, BatchLimits(max_batch_size=2), fixed)

    async def listen(text: str) -> None:
        async for _ in batcher.stream(text, **LONG):
            pass

    async def work() -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(batcher.generate([text], **LONG)) for text in ("the cat", "a dog", "NLP")
        ]
        tasks.append(asyncio.create_task(listen("I saw")))
        await until(lambda: batcher.num_running == 2)
        assert batcher.num_waiting == 2
        tasks[0].cancel()
        await until(lambda: batcher.num_waiting == 1)
        assert batcher.num_running == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (batcher.num_waiting, batcher.num_running) == (0, 0)
        await until(lambda: not batcher._scheduler.busy)
        lanes = batcher._scheduler._groups.values()
        assert not any(lane.busy for lane in lanes)
        assert await batcher.generate(["the cat"])

    asking(batcher, work())


def test_a_full_queue_refuses_at_once(small_model: TextModel) -> None:
    batcher, released = ModelWorker(small_model, BatchLimits(max_queued=2)), threading.Event()

    async def work() -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(batcher.run(lambda: released.wait(PATIENCE)))]
        await until(lambda: batcher.num_running == 1)
        tasks += [asyncio.create_task(batcher.generate(["the cat"])) for _ in range(2)]
        await asyncio.sleep(0)
        for call in (batcher.generate(["a dog"]), anext(batcher.stream("a dog")), batcher.run(lambda: 1)):
            with pytest.raises(ApiError) as refused:
                await call
            assert (refused.value.code, refused.value.status_code) == ("busy", 429)
        assert batcher.num_waiting == 2
        assert batcher.is_full
        released.set()
        await asyncio.gather(*tasks)
        assert not batcher.is_full

    asking(batcher, work())


def test_who_would_wait_too_long_is_refused_before_the_queue_is_full(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model, BatchLimits(max_queue_seconds=1e-4, max_batch_size=1))

    async def work() -> None:
        long = {"max_length": 40, "min_length": 40}
        tasks = [asyncio.create_task(batcher.generate(["the " * n + "cat"], **long)) for n in range(9)]
        await until(lambda: sum(task.done() for task in tasks) >= 2)
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["a dog"])
        assert refused.value.code == "busy"
        await asyncio.gather(*tasks)
        assert len(await batcher.generate(["a dog"])) == 1  # nobody is ahead

    asking(batcher, work())


def test_who_has_been_let_in_may_ask_on(small_model: TextModel) -> None:
    """A long text is several calls, and those behind wait for the first ones: its own."""
    batcher, released = (
        ModelWorker(small_model, BatchLimits(max_queue_seconds=1e-4, max_batch_size=1)),
        threading.Event(),
    )
    batcher._scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]

    async def request(calls: int) -> None:
        current_request.set(AccessLogEntry("one"))
        await asyncio.gather(*(batcher.generate(["the " * n + "cat"]) for n in range(calls)))

    async def work() -> None:
        holding = asyncio.create_task(batcher.run(released.wait))
        await until(lambda: batcher.num_running == 1)
        tasks = [asyncio.create_task(request(3))]
        await until(lambda: batcher.num_waiting == 3)
        with pytest.raises(ApiError, match="busy"):
            await request(1)
        released.set()
        await asyncio.gather(holding, *tasks)

    asking(batcher, work())


def test_alignments_have_an_end(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model, BatchLimits(max_alignment_weights=100))

    async def work() -> None:
        assert (await batcher.generate(["the cat"], alignments=True, max_length=5))[0].best.alignment is not None
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["the cat"] * 7, alignments=True, max_length=5)
        assert (refused.value.code, refused.value.status_code) == ("alignments_too_large", 413)
        assert len(await batcher.generate(["the cat"] * 7, max_length=5)) == 7

    asking(batcher, work())


@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
def test_nobody_is_turned_away_from_free_seats(small_model: TextModel, fixed: bool) -> None:
    """Where all end at once, all may come again at once, also behind those who still wait."""
    scheduler = Scheduler(small_model, BatchFactory(small_model, 4, fixed), BatchLimits(max_queue_seconds=0.5))
    jobs = [comes(scheduler, text) for text in ("the cat", "a dog", "NLP")]
    scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]
    for _ in range(2):  # before anybody sits, and when they do
        assert not scheduler.admission_queue.is_overloaded
        scheduler.step(0.0)
    jobs += [comes(scheduler, text) for text in ("I saw", "the", "cat")]
    scheduler.step(0.0)
    assert scheduler.admission_queue.is_overloaded
    for job in jobs[:3]:
        job.cancel()
    scheduler._remove_all(job for job in jobs if job.check_expired(0.0))
    assert (scheduler.num_waiting, scheduler.batch_size) == (2, 1)
    assert not scheduler.admission_queue.is_overloaded
    (lane,) = scheduler._open_groups
    lane.closing = True  # and makes room for others
    assert scheduler.admission_queue.is_overloaded


@pytest.mark.parametrize("count", [3, 4])
def test_who_is_about_to_sit_or_to_get_up_does_not_count_twice(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Whoever is answered may ask again before the others of that step are, and before the step is over."""
    scheduler = Scheduler(small_model, BatchFactory(small_model, 4), BatchLimits(max_queue_seconds=0.5))
    scheduler._batch_queue._mean_duration = lambda now, longest: 9.0  # type: ignore[method-assign]
    full, told = list[bool](), list[bool]()
    advance = ContinuousBatch.step

    def watched(self: ContinuousBatch, waiting: Any) -> Any:
        answers = advance(self, waiting)
        full.append(scheduler.admission_queue.is_overloaded)
        return answers

    monkeypatch.setattr(ContinuousBatch, "step", watched)
    for text in ("the cat", "a dog", "NLP", "I saw")[:count]:
        comes(
            scheduler,
            text,
            lambda event: told.append(scheduler.admission_queue.is_overloaded),
            max_length=2,
            min_length=2,
        )
    while scheduler.busy:
        scheduler.step(0.0)
    assert full == [count == 4] * 3  # tokens, with the end
    assert told == [False] * count


def comes(
    scheduler: Scheduler, text: str, heard: Callable[[Any], None] = lambda event: None, **options: int
) -> ScheduledJob:
    job = ScheduledJob(GenerateJob((text,), options or LONG), heard)
    scheduler.admission_queue.add(job)
    scheduler.add(job)
    return job


def test_tokens_in_flight_are_bounded(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model, BatchLimits(max_batch_tokens=1000))

    async def work() -> None:
        alone = asyncio.create_task(batcher.generate(["the cat"], **LONG | {"beam": 3}))
        await until(lambda: batcher.num_running == 1)
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["the cat"], **LONG | {"beam": 2})
        assert refused.value.code == "busy"
        alone.cancel()
        assert await batcher.generate(["the cat"])

    asking(batcher, work())


def test_drain_finishes_what_is_there_and_takes_nothing_new(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    async def work() -> None:
        tasks = [asyncio.create_task(batcher.generate([text], max_length=30)) for text in sentences(20)]
        await asyncio.sleep(0)
        draining = asyncio.create_task(batcher.drain())
        await asyncio.sleep(0)
        assert not batcher.is_ready
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["the cat"])
        assert (refused.value.code, refused.value.status_code) == ("draining", 503)
        assert len(await asyncio.gather(*tasks)) == 20
        await draining

    asking(batcher, work())


def test_drain_has_an_end(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model, BatchLimits(drain_seconds=0.05))

    async def work() -> None:
        task = asyncio.create_task(batcher.generate(["the cat"], max_length=20_000, min_length=20_000))
        await until(lambda: batcher.num_running == 1)
        await batcher.drain()
        with pytest.raises(ApiError) as refused:
            await task
        assert refused.value.code == "draining"

    asking(batcher, work())


def test_nobody_is_refused_a_seat_for_those_who_wait_without_one(small_model: TextModel) -> None:
    """Two queues, each with its own pace."""
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_queue_seconds=0.5))
    scheduler._exclusive_queue._estimator.estimate_wait = lambda now, ahead: 9.0 * ahead  # type: ignore[method-assign]
    asked = {
        "first": {"banned_phrases": ["zebra"]},
        "second": {"banned_phrases": ["zebra"]},
        "patient": {"mbr": "chrf"},
        "seated": {},
    }
    heard: dict[str, list[Any]] = {name: [] for name in asked}
    for name, options in asked.items():
        job = ScheduledJob(GenerateJob(("the cat",), options), heard[name].append)
        job.can_wait = name == "patient"
        scheduler.admission_queue.add(job)
        scheduler.add(job)
    assert [each.error.code for each in heard["second"]] == ["busy"]
    assert (scheduler.num_waiting, scheduler.admission_queue.is_overloaded) == (3, False)
    calls, _ = scheduler.exclusive_jobs
    while scheduler.busy or calls.busy:
        scheduler.step(0.0)
        calls.step()
    assert [type(heard[name][-1]) for name in ("first", "patient", "seated")] == [JobFinished] * 3
    assert scheduler.num_waiting == 0


def test_all_who_come_within_a_step_are_taken_in_at_the_next(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who are left lying would count as if they waited for a seat."""
    monkeypatch.setattr(worker, "_MAX_INTAKE_SECONDS", PATIENCE)  # a busy machine takes few in that time
    batcher = ModelWorker(small_model)
    for text in sentences(5):
        batcher._inbox.put(ScheduledJob(GenerateJob((text,), LONG), lambda event: None))
    batcher._inbox.put(None)  # to end, when all is done
    batcher._step_batches()
    assert (batcher._ended, batcher._inbox.qsize(), batcher.batch_size) == (True, 0, 5)


def test_where_nobody_has_a_seat_there_is_one_queue(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFactory, "supports_batching", False)  # as of an exported model
    scheduler = Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_queue_seconds=0.5))
    job = ScheduledJob(GenerateJob(("the cat",), {}), lambda event: None)
    scheduler.admission_queue.add(job)
    scheduler._exclusive_queue._estimator.estimate_wait = lambda now, ahead: 1e9  # type: ignore[method-assign]
    scheduler.add(job)
    assert (scheduler.num_waiting, scheduler.admission_queue.jobs, job.finished) == (1, {job}, False)


def test_whoever_leaves_while_it_is_moved_waits_nowhere() -> None:
    one, other = set[ScheduledJob](), set[ScheduledJob]()
    job = ScheduledJob(GenerateJob((), {}), lambda event: None)
    job.wait_in(one)
    job.wait_in(other)
    assert (one, other) == (set(), {job})
    job.cancel()
    job.wait_in(one)
    assert (one, other) == (set(), set())
