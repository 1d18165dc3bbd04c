"""An error in a worker fails only its own request and is logged without any text."""

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from jaxtyping import Float
from tiny import PATIENCE
from torch import Tensor
from worker_helpers import ENDLESS, make_sentences, run_with_worker, wait_until

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
    """A rule that raises for one sentence, after two tokens."""

    number: int

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier, /) -> Float[Tensor, "R V"]:
        if ((frontier.limits.request_id == self.number) & (frontier.length >= 2)).any():
            raise ZeroDivisionError(CANARY)
        return log_probs


@pytest.fixture
def failing_model(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> TextModel:
    number = small_model.prepare_call([CANARY]).lines[0].request_id
    monkeypatch.setattr("attendo.text_model.generation.make_rules", lambda *_, **__: [SuppressTokens(), Poison(number)])
    return small_model


def codes(found: list[Any]) -> list[str]:
    return [each.code if isinstance(each, ApiError) else "" for each in found]


@pytest.mark.short(1)
@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
@pytest.mark.parametrize("options", [{}, {"beam": 2}], ids=["greedy", "beam"])
def test_S10_a_poisoned_request_fails_alone(
    failing_model: TextModel, static: bool, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    texts = [*make_sentences(4, longest=3), CANARY, *make_sentences(7, longest=3)[4:]]
    expected = [failing_model.generate([text], **options)[0].text for text in texts if text != CANARY]
    worker = ModelWorker(failing_model, BatchLimits(max_batch_size=6), static)

    async def listen(text: str) -> str:
        return "".join([part async for part in worker.stream(text, **options)])

    async def run_all() -> list[Any]:
        tasks = [listen(text) if n % 3 == 0 else worker.generate([text], **options) for n, text in enumerate(texts)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run_with_worker(worker, run_all())
    assert codes(found) == ["failed" if text == CANARY else "" for text in texts]
    results = [each for each in found if not isinstance(each, ApiError)]
    assert [each if isinstance(each, str) else each[0].text for each in results] == expected
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "ZeroDivisionError at test_batching_faults.py" in record.getMessage()
    assert CANARY not in caplog.text


def test_a_request_of_several_texts_fails_and_frees_its_slots(failing_model: TextModel) -> None:
    worker = ModelWorker(failing_model)

    async def work() -> None:
        long = asyncio.create_task(worker.generate(["the cat"], **ENDLESS))
        with pytest.raises(ApiError) as raised:
            await worker.generate([*make_sentences(3), CANARY])
        assert (raised.value.code, raised.value.status_code) == ("failed", 500)
        await wait_until(lambda: worker.num_running == 1)
        long.cancel()
        await wait_until(lambda: not worker._scheduler.busy)
        assert await worker.generate(["the cat"])

    run_with_worker(worker, work())


def test_S10_a_tokenizer_error_fails_only_its_request(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, call = ModelWorker(small_model), small_model.prepare_call

    def fail_on_canary(texts: Any, **options: Any) -> Any:
        if CANARY in texts:
            raise MemoryError
        return call(texts, **options)

    monkeypatch.setattr(small_model, "prepare_call", fail_on_canary)

    async def work() -> list[Any]:
        calls = [worker.generate(["the cat"]), worker.generate([CANARY]), worker.generate(["a dog"])]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert codes(run_with_worker(worker, work())) == ["", "failed", ""]


@pytest.mark.slow
def test_out_of_memory_halves_the_batch_size(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = make_sentences(9, longest=3)
    expected = [small_model.generate([text])[0].text for text in texts]

    class SmallStaticBatch(StaticBatch):
        def __init__(self, network: Any, strategy: Any, rules: Any, shape: Any, compiled: bool = False) -> None:
            if shape.count > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            super().__init__(network, strategy, rules, shape, compiled)

    monkeypatch.setattr(batches, "StaticBatch", SmallStaticBatch)
    worker = ModelWorker(small_model, BatchLimits(max_batch_size=8), static_shapes=True)

    async def work() -> list[Any]:
        return await asyncio.gather(*(worker.generate([text]) for text in texts), return_exceptions=True)

    assert [each[0].text for each in run_with_worker(worker, work())] == expected
    assert "not enough memory for a batch of 8 sentences: the batch is reduced to 4" in caplog.text


@pytest.fixture
def calls(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every call of `generate`. A call with the canary raises."""
    calls: list[list[str]] = []
    generate = small_model.generate

    def generate_and_record(texts: list[str], **options: Any) -> list[Result]:
        calls.append(texts)
        if CANARY in texts:
            raise ZeroDivisionError
        return generate(texts, **options)

    monkeypatch.setattr(small_model, "generate", generate_and_record)
    return calls


def test_unbatched_calls_are_merged_and_fail_alone(small_model: TextModel, calls: list[list[str]]) -> None:
    worker, released, texts = ModelWorker(small_model), threading.Event(), ["the cat", CANARY, "a dog", "I saw"]
    options: dict[str, Any] = {"engine": "cached"}

    async def work() -> list[Any]:
        blocking = asyncio.create_task(worker.run(lambda: released.wait(PATIENCE)))
        await wait_until(lambda: worker.num_running == 1)
        tasks = [asyncio.create_task(worker.generate([text], **options)) for text in texts]
        # A call with a list of prefixes is not merged.
        tasks.append(asyncio.create_task(worker.generate(["the cat"], prefix=[""], **options)))
        await wait_until(lambda: worker.num_waiting == 5)
        released.set()
        await blocking
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = run_with_worker(worker, work())
    assert codes(found) == ["", "failed", "", "", ""]
    assert [each[0].text for each in found if not isinstance(each, ApiError)] == [
        small_model.generate([text], **options)[0].text for text in (*texts[:1], *texts[2:], "the cat")
    ]
    assert calls[0] == texts


def test_a_dead_thread_fails_all_requests(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, step, steps = ModelWorker(small_model), Scheduler.step, list[int]()

    def step_and_die(self: Scheduler, now: float) -> None:
        steps.append(1)
        if len(steps) > 5:
            raise SystemExit
        step(self, now)

    monkeypatch.setattr(Scheduler, "step", step_and_die)

    async def work() -> None:
        assert worker.is_ready
        tasks = [worker.generate([text], **ENDLESS) for text in ("the cat", "a dog")]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert codes(found) == ["stopped", "stopped"]
        assert not worker.is_ready
        with pytest.raises(ApiError) as raised:
            await worker.generate(["the cat"])
        assert (raised.value.code, raised.value.status_code) == ("stopped", 503)

    run_with_worker(worker, work())


def test_callable_errors_keep_known_codes(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    def reject() -> None:
        raise ApiError("empty_text")

    async def work() -> list[Any]:
        calls = [worker.run(reject), worker.run(lambda: 1 // 0), worker.run(lambda: 7)]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = run_with_worker(worker, work())
    assert codes(found[:2]) == ["empty_text", "failed"]
    assert found[2] == 7


def test_finished_jobs_leave_no_state(small_model: TextModel) -> None:
    worker = ModelWorker(small_model)

    async def work() -> None:
        for options in ({}, {"beam": 2}, {"banned_phrases": ["猫"]}):
            await asyncio.gather(*(worker.generate([text], **options) for text in make_sentences(6, longest=3)))
        with pytest.raises(ApiError):
            await worker.run(lambda: 1 // 0)
        await wait_until(lambda: not worker._scheduler.busy)

    run_with_worker(worker, work())
    scheduler = worker._scheduler
    assert (worker.num_waiting, worker.num_running, len(worker._jobs)) == (0, 0, 0)
    assert not any((scheduler._jobs, scheduler._open_groups, scheduler._pending_groups))
    for each in scheduler.unbatched_runners:
        assert not any((each._jobs, each._iterators, each._isolated, each._results))
    assert not any(group._responses or group.has_waiting or group.busy for group in scheduler._groups.values())
