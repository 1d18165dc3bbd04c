"""What cannot be taken apart into steps: a call at a time, so much in each, and nobody is kept waiting for long."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from batcher_users import sentences

from attendo.decode.step_hook import run_step_hook
from attendo.serve.scheduling import background as module
from attendo.serve.scheduling.admission import ExclusiveJobQueue
from attendo.serve.scheduling.background import ExclusiveJobs
from attendo.serve.scheduling.jobs import CallableJob, Chunk, GenerateJob, JobFailed, JobFinished, ScheduledJob
from attendo.text_model import Result, TextModel

BAN: dict[str, Any] = {"banned_phrases": ["zebra"]}


class Calls:
    """A model that remembers what it was asked."""

    def __init__(self, model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[list[str]] = []
        generate = model.generate

        def remembering(texts: Sequence[str], **options: Any) -> list[Result]:
            self.texts.append([*texts])
            return generate(texts, **options)

        monkeypatch.setattr(model, "generate", remembering)


def exclusive(model: TextModel) -> ExclusiveJobs:
    return ExclusiveJobs(model, ExclusiveJobQueue(max_wait=1.0, next_batch_size=32))


def asked(pieces: ExclusiveJobs, texts: Sequence[str], **options: Any) -> tuple[ScheduledJob, list[Any]]:
    heard: list[Any] = []
    job = ScheduledJob(GenerateJob(tuple(texts), options), heard.append)
    pieces.add(job)
    return job, heard


def work_off(pieces: ExclusiveJobs) -> None:
    for _ in range(100):
        if not pieces.busy:
            return
        pieces.step()
    raise AssertionError("it never came to an end")


def test_many_texts_are_answered_a_few_at_a_time_and_others_come_in_between(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_TEXTS", 3)
    many, calls = sentences(8), Calls(small_model, monkeypatch)
    pieces = exclusive(small_model)
    first, heard = asked(pieces, many, **BAN)
    pieces.step()
    _, other = asked(pieces, many[:1], **BAN)
    work_off(pieces)
    assert calls.texts == [many[:3], many[3:6], [*many[:1], *many[6:]]]
    (finished,), (also_finished,) = heard, other
    assert [each.text for each in finished.value] == [each.text for each in small_model.generate(many, **BAN)]
    assert [each.text for each in also_finished.value] == [finished.value[0].text]
    assert first.finished


def test_by_turns_who_has_waited_longest_and_who_asks_for_least(small_model: TextModel) -> None:
    pieces, served = exclusive(small_model), list[int]()
    for tokens in (900, 800, 5, 7, 700):
        job, _ = asked(pieces, ["the cat"], banned_phrases=[f"zebra {tokens}"])
        job.token_cost = tokens
    while pieces.busy:
        waiting = [*pieces._jobs]
        pieces.step()
        served += [job.token_cost for job in waiting if job.finished]
    assert served == [900, 5, 800, 7, 700]


def test_long_texts_are_answered_one_by_one(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_CHARACTERS", 20)
    long, calls = " ".join(["the cat sat"] * 5), Calls(small_model, monkeypatch)
    pieces = exclusive(small_model)
    asked(pieces, ["a dog", long, "a dog", "the cat"], **BAN)
    work_off(pieces)
    assert calls.texts == [["a dog"], [long], ["a dog", "the cat"]]


@pytest.mark.parametrize("options", [{"prefix": ["我", "猫"]}, {"constraints": [["我"], ["猫"]], "beam": 2}])
def test_what_is_asked_for_each_text_stays_together(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "_MAX_CALL_TEXTS", 1)
    calls, pieces = Calls(small_model, monkeypatch), exclusive(small_model)
    texts = ["the cat", "a dog"]
    _, heard = asked(pieces, texts, **options)
    asked(pieces, texts, **options)
    work_off(pieces)
    assert calls.texts == [texts, texts]
    assert isinstance(heard[0], JobFinished)


def test_no_texts_are_answered_at_once(small_model: TextModel) -> None:
    pieces = exclusive(small_model)
    _, heard = asked(pieces, (), **BAN)
    work_off(pieces)
    assert heard == [JobFinished([])]


def test_S7_a_call_ends_at_the_step_after_the_last_of_those_it_is_for_was_lost(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[float] = []
    pieces = exclusive(small_model)
    pieces.pause = lambda: beats.append(time.monotonic())
    (first, heard), (second, _) = (asked(pieces, ["the cat"], min_length=400, **BAN) for _ in range(2))
    first.deadline = time.monotonic() - 1
    look, looks = pieces._check_cancelled, 0

    def counted(jobs: Sequence[ScheduledJob]) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            second.cancel()
        look(jobs)

    monkeypatch.setattr(pieces, "_check_cancelled", counted)
    pieces.step()
    assert looks == len(beats) == 5
    assert isinstance(heard[0], JobFailed)
    assert (first.finished, second.finished, pieces.busy) == (True, True, False)


def test_other_work_is_looked_on_too(small_model: TextModel) -> None:
    beats: list[int] = []
    pieces = exclusive(small_model)
    pieces.pause = lambda: beats.append(1)
    heard: list[Any] = []

    def numbers() -> Any:
        run_step_hook()
        yield 1
        run_step_hook()
        yield 2

    pieces.add(ScheduledJob(CallableJob(numbers), heard.append))
    work_off(pieces)
    assert heard[:2] == [Chunk(1), Chunk(2)]
    assert isinstance(heard[2], JobFinished)
    assert len(beats) == 2
