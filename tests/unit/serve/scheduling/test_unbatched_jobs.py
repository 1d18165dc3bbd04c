"""`UnbatchedJobRunner`: one call at a time, with a limited amount of text in each."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from worker_helpers import make_sentences

from attendo.decode.search import run_step_hook
from attendo.serve.scheduling import unbatched as module
from attendo.serve.scheduling.admission import UnbatchedAdmissionQueue
from attendo.serve.scheduling.jobs import CallableJob, Chunk, GenerateJob, JobFailed, JobFinished, ScheduledJob
from attendo.serve.scheduling.unbatched import UnbatchedJobRunner
from attendo.text_model import Result, TextModel

BAN: dict[str, Any] = {"banned_phrases": ["zebra"]}


class Calls:
    """Records the texts of every call of `generate`."""

    def __init__(self, model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[list[str]] = []
        generate = model.generate

        def generate_and_record(texts: Sequence[str], **options: Any) -> list[Result]:
            self.texts.append([*texts])
            return generate(texts, **options)

        monkeypatch.setattr(model, "generate", generate_and_record)


def make_runner(model: TextModel) -> UnbatchedJobRunner:
    return UnbatchedJobRunner(model, UnbatchedAdmissionQueue(max_wait=1.0, next_batch_size=32))


def add_job(runner: UnbatchedJobRunner, texts: Sequence[str], **options: Any) -> tuple[ScheduledJob, list[Any]]:
    events: list[Any] = []
    job = ScheduledJob(GenerateJob(tuple(texts), options), events.append)
    runner.add(job)
    return job, events


def run_to_end(runner: UnbatchedJobRunner) -> None:
    for _ in range(100):
        if not runner.busy:
            return
        runner.step()
    raise AssertionError("the jobs did not end within 100 steps")


def test_many_texts_are_split_and_merged_with_other_jobs(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_TEXTS", 3)
    many, calls = make_sentences(8), Calls(small_model, monkeypatch)
    runner = make_runner(small_model)
    first, events = add_job(runner, many, **BAN)
    runner.step()
    _, other_events = add_job(runner, many[:1], **BAN)
    run_to_end(runner)
    assert calls.texts == [many[:3], many[3:6], [*many[:1], *many[6:]]]
    (finished,), (also_finished,) = events, other_events
    assert [each.text for each in finished.value] == [each.text for each in small_model.generate(many, **BAN)]
    assert [each.text for each in also_finished.value] == [finished.value[0].text]
    assert first.finished


def test_the_oldest_and_the_smallest_job_alternate(small_model: TextModel) -> None:
    runner, order = make_runner(small_model), list[int]()
    for tokens in (900, 800, 5, 7, 700):
        job, _ = add_job(runner, ["the cat"], banned_phrases=[f"zebra {tokens}"])
        job.token_cost = tokens
    while runner.busy:
        waiting = [*runner._jobs]
        runner.step()
        order += [job.token_cost for job in waiting if job.finished]
    assert order == [900, 5, 800, 7, 700]


def test_long_texts_run_one_per_call(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_CHARACTERS", 20)
    long, calls = " ".join(["the cat sat"] * 5), Calls(small_model, monkeypatch)
    runner = make_runner(small_model)
    add_job(runner, ["a dog", long, "a dog", "the cat"], **BAN)
    run_to_end(runner)
    assert calls.texts == [["a dog"], [long], ["a dog", "the cat"]]


@pytest.mark.parametrize("options", [{"prefix": ["我", "猫"]}, {"constraints": [["我"], ["猫"]], "beam": 2}])
def test_options_per_text_are_not_split(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_TEXTS", 1)
    calls, runner = Calls(small_model, monkeypatch), make_runner(small_model)
    texts = ["the cat", "a dog"]
    _, events = add_job(runner, texts, **options)
    add_job(runner, texts, **options)
    run_to_end(runner)
    assert calls.texts == [texts, texts]
    assert isinstance(events[0], JobFinished)


def test_a_job_without_texts_finishes_at_once(small_model: TextModel) -> None:
    runner = make_runner(small_model)
    _, events = add_job(runner, (), **BAN)
    run_to_end(runner)
    assert events == [JobFinished([])]


def test_S7_a_call_ends_one_step_after_its_last_job_is_lost(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    runner = make_runner(small_model)
    runner.pause = lambda: pauses.append(time.monotonic())
    (first, events), (second, _) = (add_job(runner, ["the cat"], min_length=400, **BAN) for _ in range(2))
    first.deadline = time.monotonic() - 1
    check, checks = runner._check_cancelled, 0

    def check_and_count(jobs: Sequence[ScheduledJob]) -> None:
        nonlocal checks
        checks += 1
        if checks == 5:
            second.cancel()
        check(jobs)

    monkeypatch.setattr(runner, "_check_cancelled", check_and_count)
    runner.step()
    assert checks == len(pauses) == 5
    assert isinstance(events[0], JobFailed)
    assert (first.finished, second.finished, runner.busy) == (True, True, False)


def test_callable_jobs_run_the_step_hook(small_model: TextModel) -> None:
    pauses: list[int] = []
    runner = make_runner(small_model)
    runner.pause = lambda: pauses.append(1)
    events: list[Any] = []

    def numbers() -> Any:
        run_step_hook()
        yield 1
        run_step_hook()
        yield 2

    runner.add(ScheduledJob(CallableJob(numbers), events.append))
    run_to_end(runner)
    assert events[:2] == [Chunk(1), Chunk(2)]
    assert isinstance(events[2], JobFinished)
    assert len(pauses) == 2
