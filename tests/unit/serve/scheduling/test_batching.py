"""Batched requests: every answer is the same as without the batch."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from error_codes import has_code
from small_server import random_model
from worker_helpers import ENDLESS, WORDS, make_sentences, run_with_worker, wait_until

from attendo.decode.search import run_step_hook
from attendo.errors import UsageError
from attendo.serve.scheduling.batches import BatchFactory
from attendo.serve.scheduling.jobs import GenerateJob, JobEvent, JobFinished, ScheduledJob
from attendo.serve.scheduling.scheduler import Scheduler
from attendo.serve.scheduling.worker import BatchLimits, ModelWorker
from attendo.text_model import Result, TextModel

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"beam": 3},
    {"beam": 4, "n_best": 2},
    {"beam": 4, "beam_groups": 2},
    {"sample": True, "seed": 3, "n_best": 3},
    {"prefix": "我 看见"},
    {"min_length": 4, "max_length": 9},
    {"beam": 2, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"beam": 3, "coverage_penalty": 0.2},
    {"beam": 3, "constraints": ["猫"]},
    {"banned_phrases": ["猫"]},
    {"mbr": "chrf", "mbr_candidates": 4},
    {"alignments": True},
    {"engine": "cached"},
)


# A request that runs to its end, long enough for others to join and leave the batch.
LONGER = {"max_length": 300, "min_length": 300}

Cases = list[tuple[dict[str, Any], list[str], list[Result]]]


@pytest.fixture(scope="module")
def varied_model() -> TextModel:
    """Generates answers of many words and many lengths."""
    return random_model(seed=5)


@pytest.fixture(scope="module")
def cases(varied_model: TextModel) -> Cases:
    """Options, texts, and the results of the model without a worker."""
    texts = make_sentences(34, longest=4)
    calls = [(OPTIONS[n % len(OPTIONS)], texts[n : n + 1 + n % 3 // 2]) for n in range(32)]
    return [(options, some, varied_model.generate(some, **options)) for options, some in calls]


@pytest.mark.short(1)
@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
def test_S12_batched_answers_equal_single_answers(varied_model: TextModel, cases: Cases, static: bool) -> None:
    worker = ModelWorker(varied_model, BatchLimits(max_batch_size=5), static)

    async def one(number: int) -> list[Result]:
        await asyncio.sleep(0.002 * (number % 7))
        options, texts, _ = cases[number]
        return await worker.generate(texts, **options)

    async def run_all() -> list[list[Result]]:
        return await asyncio.gather(*map(one, range(len(cases))))

    found = run_with_worker(worker, run_all())
    assert len({result.text for _, _, results in cases for result in results}) > 20
    for ours, (options, _, alone) in zip(found, cases, strict=True):
        assert [comparable(result) for result in ours] == [comparable(result) for result in alone], options
        assert [each.score for each in ours] == pytest.approx([each.score for each in alone], abs=1e-4)


def comparable(result: Result) -> Any:
    return result.unknown, [(each.text, each.ids, each.cut, each.constraints) for each in result.hypotheses]


@pytest.mark.short(2)
@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
@pytest.mark.parametrize("options", [*OPTIONS[:2], OPTIONS[4] | {"n_best": 1}, *OPTIONS[8:12]], ids=str)
def test_S15_a_joined_stream_equals_the_answer(varied_model: TextModel, options: dict[str, Any], static: bool) -> None:
    texts = ["", *make_sentences(3, longest=5)]
    expected = [varied_model.generate([text], **options)[0].text for text in texts]
    worker = ModelWorker(varied_model, static_shapes=static)

    async def one(text: str) -> list[str]:
        return [part async for part in worker.stream(text, **options)]

    async def run_all() -> list[list[str]]:
        return await asyncio.gather(*(one(text) for text in texts))

    found = run_with_worker(worker, run_all())
    assert ["".join(parts) for parts in found] == expected
    assert all(all(parts) for parts in found)
    if not options:
        assert max(map(len, found)) > 2


def test_split_texts_and_beams_stream_before_the_end(
    small_model: TextModel,
) -> None:
    worker, text, options = ModelWorker(small_model), "the cat. a dog! I love NLP", {"split": True, "max_source": 4}

    async def work() -> None:
        assert [result.text for result in await worker.generate([text], **options)] == [
            result.text for result in small_model.generate([text], **options)
        ]
        parts = [part async for part in worker.stream(text, **options)]
        assert "".join(parts) == small_model.generate([text], **options)[0].text
        assert len(parts) > 1
        beams = [[part async for part in worker.stream(each, beam=3)] for each in make_sentences(4)]
        assert max(map(len, beams)) > 1

    run_with_worker(worker, work())


class SteppedScheduler:
    """A scheduler that the test steps, so that no thread decides which request ends first."""

    def __init__(self, model: TextModel, static: bool = False) -> None:
        self.scheduler = Scheduler(model, BatchFactory(model, static_shapes=static), BatchLimits())

    def submit(self, length: int) -> tuple[ScheduledJob, list[JobEvent]]:
        events: list[JobEvent] = []
        options = {"max_length": length, "min_length": length}
        job = ScheduledJob(GenerateJob(("the cat sat",), options), events.append)
        self.scheduler.add(job)
        return job, events

    def step_until_finished(self, job: ScheduledJob) -> int:
        """The number of steps."""
        for steps in range(200):
            if job.finished:
                return steps
            self.scheduler.step(0.0)
        raise AssertionError("the job did not finish within 200 steps")


@pytest.mark.short(1)
@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
def test_short_requests_join_and_leave_a_running_batch(small_model: TextModel, static: bool) -> None:
    stepped = SteppedScheduler(small_model, static)
    long, _ = stepped.submit(60)
    stepped.scheduler.step(0.0)
    for _ in range(2):
        short, _ = stepped.submit(3)
        assert stepped.step_until_finished(short) <= 5  # 3 tokens, EOS, and at most one step to join
        assert len(stepped.scheduler._open_groups) == 1  # all have the same width
    assert not long.finished
    assert 60 - 10 <= stepped.step_until_finished(long) <= 60


def test_a_wide_request_does_not_delay_narrow_ones(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        wide = asyncio.create_task(worker.generate([" ".join(WORDS * 20)], **ENDLESS))
        await wait_until(lambda: worker.num_running == 1)
        for _ in range(3):
            assert await worker.generate(["the cat sat"], min_length=1)
        assert not wide.done()
        assert len(worker._scheduler._groups) == 2
        wide.cancel()
        await wait_until(lambda: worker.num_running == 0)

    run_with_worker(worker, work())


def test_identical_requests_share_one_computation(small_model: TextModel) -> None:
    stepped = SteppedScheduler(small_model)
    (one, _), (other, _), (shorter, _) = stepped.submit(60), stepped.submit(60), stepped.submit(40)
    stepped.scheduler.step(0.0)
    (group,) = stepped.scheduler._groups.values()
    assert len(group._responses) == 2
    one.cancel()
    stepped.step_until_finished(shorter)
    again, events = stepped.submit(41)  # equal except for its limit, like one that is cancelled
    stepped.scheduler.step(0.0)
    assert (other.is_active, len(group._responses)) == (True, 2)
    other.cancel()
    stepped.step_until_finished(again)
    (finished,) = events
    assert isinstance(finished, JobFinished)
    assert len(finished.value[0].ids) == 41


def test_wrong_options_raise_the_errors_of_the_model(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        for options in ({"beam": 4, "sample": True}, {"bream": 2}, {"prefix": ["a", "b"]}):
            with pytest.raises(UsageError):
                await worker.generate(["the cat"], **options)
        with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
            await anext(worker.stream("the cat", beam=2, n_best=2))
        with pytest.raises(UsageError, check=has_code("texts_not_a_list")):
            await worker.generate("the cat")
        assert await worker.generate([]) == []

    run_with_worker(worker, work())


def test_pending_groups_run_while_open_groups_are_busy(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open groups have work all the time."""
    monkeypatch.setattr("attendo.serve.scheduling.scheduler._MAX_OPEN_GROUPS", 2)
    monkeypatch.setattr("attendo.serve.scheduling.scheduler._MAX_STEPS_PER_GROUP", 4)
    scheduler, running = (
        Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_batch_tokens=10_000)),
        list[tuple[int, list[JobEvent]]](),
    )

    texts = iter(make_sentences(400))

    def submit(seed: int, length: int) -> list[JobEvent]:
        events: list[JobEvent] = []
        options = {"sample": True, "seed": seed, "max_length": length, "min_length": length}
        scheduler.add(ScheduledJob(GenerateJob((next(texts),), options), events.append))
        return events

    for seed in (0, 0, 1, 1):
        running.append((seed, submit(seed, 5 + len(running) % 2)))
        scheduler.step(0.0)
    others = [submit(seed, 3) for seed in (2, 3, 4)]
    for _ in range(100):
        scheduler.step(0.0)
        running = [(seed, submit(seed, 6) if events else events) for seed, events in running]
        if all(others):
            break
    assert [type(events[-1]) for events in others] == [JobFinished] * 3


@pytest.mark.slow
def test_unused_groups_are_dropped(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)
    expected = [small_model.generate(["the cat"], sample=True, seed=seed)[0].text for seed in range(12)]

    async def work() -> list[str]:
        answers = (worker.generate(["the cat"], sample=True, seed=seed) for seed in range(12))
        return [results[0].text for results in await asyncio.gather(*answers)]

    assert run_with_worker(worker, work()) == expected
    assert len(worker._scheduler._groups) == 8


def test_callables_run_in_another_thread_during_a_batch(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    def numbers() -> Iterator[int]:
        for number in range(3):
            yield threading.get_ident() * 0 + number

    async def work() -> None:
        long = asyncio.create_task(worker.generate(["the cat"], **ENDLESS))
        await wait_until(lambda: worker.num_running == 1)
        assert [number async for number in worker.iterate(numbers)] == [0, 1, 2]
        thread = await worker.run(threading.get_ident)
        assert thread != threading.get_ident()
        assert not long.done()
        long.cancel()
        await wait_until(lambda: worker.num_running == 0)

    run_with_worker(worker, work())


def test_a_worker_serves_several_event_loops() -> None:
    model = random_model()
    worker = ModelWorker(model)
    expected = model.generate(["the cat"])[0].text
    for _ in range(2):
        assert asyncio.run(worker.generate(["the cat"]))[0].text == expected
    asyncio.run(worker.drain())


@pytest.mark.slow
@pytest.mark.parametrize(
    "heavy",
    [
        {"constraints": ["猫"], "beam": 4},
        {"mbr": "chrf", "sample": True, "mbr_candidates": 4},
        {"alignments": True},
        {"banned_phrases": ["zebra"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_unbatched_jobs_do_not_delay_batches(small_model: TextModel, heavy: dict[str, Any]) -> None:
    """Later requests and callables finish first."""
    worker = ModelWorker(small_model)
    alone = [each.text for each in small_model.generate(make_sentences(3))]

    async def work() -> None:
        long = asyncio.create_task(worker.generate(["the cat"], **LONGER, **heavy))
        await wait_until(lambda: worker.num_running == 1)
        assert [each.text for each in await worker.generate(make_sentences(3))] == alone
        assert await worker.run(lambda: 7) == 7
        assert not long.done()
        found = await long
        assert found[0].ids == small_model.generate(["the cat"], **LONGER, **heavy)[0].ids

    run_with_worker(worker, work())


@pytest.mark.slow
def test_requests_that_join_during_an_unbatched_job_finish(small_model: TextModel) -> None:
    """Also if the job runs in torch's inference mode, whose tensors cannot be changed outside it."""
    worker = ModelWorker(small_model)

    def unbatched_job() -> None:
        with torch.inference_mode():
            while worker.num_running < 2:
                run_step_hook()

    async def work() -> None:
        job = asyncio.create_task(worker.run(unbatched_job))
        await wait_until(lambda: worker.num_running == 1)
        longer = asyncio.create_task(worker.generate(["a dog"], beam=3, **LONGER))
        await job
        assert not longer.done()
        assert (await longer)[0].ids == small_model.generate(["a dog"], beam=3, **LONGER)[0].ids

    run_with_worker(worker, work())
