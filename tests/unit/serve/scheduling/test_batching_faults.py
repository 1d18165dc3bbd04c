"""Trouble in a batcher: it is told to whom it belongs, and written down without a word of any text."""

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from batcher_users import LONG, asking, sentences, until
from jaxtyping import Float
from tiny import PATIENCE
from torch import Tensor

from attendo.decode.frontier import Frontier
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule
from attendo.decode.static_batch import StaticBatch
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling import batches
from attendo.serve.scheduling.scheduler import Scheduler
from attendo.serve.scheduling.worker import BatchLimits, ModelWorker
from attendo.text_model import Result, TextModel

CANARY = "small small NLP"


@dataclass(frozen=True)
class Poison(Rule):
    """A rule that one sentence is too much for, some tokens after it began."""

    number: int

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier, /) -> Float[Tensor, "R V"]:
        if ((frontier.limits.request_id == self.number) & (frontier.length >= 2)).any():
            raise ZeroDivisionError(CANARY)
        return log_probs


@pytest.fixture
def poisoned(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> TextModel:
    number = small_model.prepare_call([CANARY]).lines[0].request_id
    monkeypatch.setattr("attendo.text_model.generation.make_rules", lambda *_, **__: [SuppressTokens(), Poison(number)])
    return small_model


def codes(found: list[Any]) -> list[str]:
    return [each.code if isinstance(each, ApiError) else "" for each in found]


@pytest.mark.short(1)
@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
@pytest.mark.parametrize("options", [{}, {"beam": 2}], ids=["greedy", "beam"])
def test_S10_a_poisoned_request_fails_alone(
    poisoned: TextModel, fixed: bool, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    texts = [*sentences(4, longest=3), CANARY, *sentences(7, longest=3)[4:]]
    expected = [poisoned.generate([text], **options)[0].text for text in texts if text != CANARY]
    batcher = ModelWorker(poisoned, BatchLimits(max_batch_size=6), fixed)

    async def listen(text: str) -> str:
        return "".join([part async for part in batcher.stream(text, **options)])

    async def all_of_them() -> list[Any]:
        tasks = [listen(text) if n % 3 == 0 else batcher.generate([text], **options) for n, text in enumerate(texts)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asking(batcher, all_of_them())
    assert codes(found) == ["failed" if text == CANARY else "" for text in texts]
    answered = [each for each in found if not isinstance(each, ApiError)]
    assert [each if isinstance(each, str) else each[0].text for each in answered] == expected
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "ZeroDivisionError at test_batching_faults.py" in record.getMessage()
    assert CANARY not in caplog.text


def test_a_request_with_several_texts_fails_whole_and_frees_all_its_places(poisoned: TextModel) -> None:
    batcher = ModelWorker(poisoned)

    async def work() -> None:
        long = asyncio.create_task(batcher.generate(["the cat"], **LONG))
        with pytest.raises(ApiError) as refused:
            await batcher.generate([*sentences(3), CANARY])
        assert (refused.value.code, refused.value.status_code) == ("failed", 500)
        await until(lambda: batcher.num_running == 1)
        long.cancel()
        await until(lambda: not batcher._scheduler.busy)
        assert await batcher.generate(["the cat"])

    asking(batcher, work())


def test_S10_trouble_in_a_tokenizer_is_told_to_whom_it_belongs(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher, call = ModelWorker(small_model), small_model.prepare_call

    def troubled(texts: Any, **options: Any) -> Any:
        if CANARY in texts:
            raise MemoryError
        return call(texts, **options)

    monkeypatch.setattr(small_model, "prepare_call", troubled)

    async def work() -> list[Any]:
        calls = [batcher.generate(["the cat"]), batcher.generate([CANARY]), batcher.generate(["a dog"])]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert codes(asking(batcher, work())) == ["", "failed", ""]


@pytest.mark.slow
def test_where_there_is_memory_for_few_seats_few_answer(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = sentences(9, longest=3)
    expected = [small_model.generate([text])[0].text for text in texts]

    class Few(StaticBatch):
        def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
            if shape.count > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            super().__init__(network, strategy, rules, shape, compiled)

    monkeypatch.setattr(batches, "StaticBatch", Few)
    batcher = ModelWorker(small_model, BatchLimits(max_batch_size=8), static_shapes=True)

    async def work() -> list[Any]:
        return await asyncio.gather(*(batcher.generate([text]) for text in texts), return_exceptions=True)

    assert [each[0].text for each in asking(batcher, work())] == expected
    assert "memory does not suffice for 8 sentences side by side: making do with 4" in caplog.text


@pytest.fixture
def calls(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every call of `generate`; one of them cannot be answered."""
    made: list[list[str]] = []
    generate = small_model.generate

    def counting(texts: list[str], **options: Any) -> list[Result]:
        made.append(texts)
        if CANARY in texts:
            raise ZeroDivisionError
        return generate(texts, **options)

    monkeypatch.setattr(small_model, "generate", counting)
    return made


def test_what_has_no_steps_is_gathered_into_one_call_and_fails_alone(
    small_model: TextModel, calls: list[list[str]]
) -> None:
    batcher, gate, texts = ModelWorker(small_model), threading.Event(), ["the cat", CANARY, "a dog", "I saw"]
    options: dict[str, Any] = {"engine": "cached"}

    async def work() -> list[Any]:
        blocking = asyncio.create_task(batcher.run(lambda: gate.wait(PATIENCE)))
        await until(lambda: batcher.num_running == 1)
        tasks = [asyncio.create_task(batcher.generate([text], **options)) for text in texts]
        tasks.append(asyncio.create_task(batcher.generate(["the cat"], prefix=[""], **options)))  # lists go alone
        await until(lambda: batcher.num_waiting == 5)
        gate.set()
        await blocking
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asking(batcher, work())
    assert codes(found) == ["", "failed", "", "", ""]
    assert [each[0].text for each in found if not isinstance(each, ApiError)] == [
        small_model.generate([text], **options)[0].text for text in (*texts[:1], *texts[2:], "the cat")
    ]
    assert calls[0] == texts


def test_a_thread_that_dies_tells_everybody(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    batcher, turn, turns = ModelWorker(small_model), Scheduler.step, list[int]()

    def deadly(self: Scheduler, now: float) -> None:
        turns.append(1)
        if len(turns) > 5:
            raise SystemExit
        turn(self, now)

    monkeypatch.setattr(Scheduler, "step", deadly)

    async def work() -> None:
        assert batcher.is_ready
        tasks = [batcher.generate([text], **LONG) for text in ("the cat", "a dog")]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert codes(found) == ["stopped", "stopped"]
        assert not batcher.is_ready
        with pytest.raises(ApiError) as refused:
            await batcher.generate(["the cat"])
        assert (refused.value.code, refused.value.status_code) == ("stopped", 503)

    asking(batcher, work())


def test_trouble_in_other_work_is_told_as_it_is_where_it_was_foreseen(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    def refused() -> None:
        raise ApiError("empty_text")

    async def work() -> list[Any]:
        calls = [batcher.run(refused), batcher.run(lambda: 1 // 0), batcher.run(lambda: 7)]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asking(batcher, work())
    assert codes(found[:2]) == ["empty_text", "failed"]
    assert found[2] == 7


def test_nothing_is_left_of_jobs_that_are_over(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    async def work() -> None:
        for options in ({}, {"beam": 2}, {"banned_phrases": ["猫"]}):
            await asyncio.gather(*(batcher.generate([text], **options) for text in sentences(6, longest=3)))
        with pytest.raises(ApiError):
            await batcher.run(lambda: 1 // 0)
        await until(lambda: not batcher._scheduler.busy)

    asking(batcher, work())
    scheduler = batcher._scheduler
    assert (batcher.num_waiting, batcher.num_running, len(batcher._jobs)) == (0, 0, 0)
    assert not any((scheduler._jobs, scheduler._open_groups, scheduler._pending_groups))
    for each in scheduler.exclusive_jobs:
        assert not any((each._jobs, each._iterators, each._isolated, each._results))
    assert not any(lane._responses or lane.has_waiting or lane.busy for lane in scheduler._groups.values())
