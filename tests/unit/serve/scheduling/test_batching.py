"""Requests answered together: as if each were alone, bounded, in time, and nobody's trouble is another's."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from batcher_users import LONG, WORDS, asking, sentences, until
from error_codes import has_code
from small_server import random_model

from attendo.decode.step_hook import run_step_hook
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


# A request that is waited for to its end, and runs long enough for others to come and go meanwhile.
LONGER = {"max_length": 120, "min_length": 120}

Asked = list[tuple[dict[str, Any], list[str], list[Result]]]


@pytest.fixture(scope="module")
def lively_model() -> TextModel:
    """Whose answers are of many words, and of many lengths."""
    return random_model(seed=5)


@pytest.fixture(scope="module")
def asked(lively_model: TextModel) -> Asked:
    """Options, texts, and what is answered to them alone."""
    texts = sentences(34, longest=4)
    calls = [(OPTIONS[n % len(OPTIONS)], texts[n : n + 1 + n % 3 // 2]) for n in range(32)]
    return [(options, some, lively_model.generate(some, **options)) for options, some in calls]


@pytest.mark.short(1)
@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
def test_S12_answers_are_those_of_each_alone(lively_model: TextModel, asked: Asked, fixed: bool) -> None:
    batcher = ModelWorker(lively_model, BatchLimits(max_batch_size=5), fixed)

    async def one(number: int) -> list[Result]:
        await asyncio.sleep(0.002 * (number % 7))
        options, texts, _ = asked[number]
        return await batcher.generate(texts, **options)

    async def all_of_them() -> list[list[Result]]:
        return await asyncio.gather(*map(one, range(len(asked))))

    found = asking(batcher, all_of_them())
    assert len({result.text for _, _, results in asked for result in results}) > 20
    for ours, (options, _, alone) in zip(found, asked, strict=True):
        assert [told(result) for result in ours] == [told(result) for result in alone], options
        assert [each.score for each in ours] == pytest.approx([each.score for each in alone], abs=1e-4)


def told(result: Result) -> Any:
    return result.unknown, [(each.text, each.ids, each.cut, each.constraints) for each in result.hypotheses]


@pytest.mark.short(2)
@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
@pytest.mark.parametrize("options", [*OPTIONS[:2], OPTIONS[4] | {"n_best": 1}, *OPTIONS[8:12]], ids=str)
def test_S15_a_stream_joined_is_the_answer(lively_model: TextModel, options: dict[str, Any], fixed: bool) -> None:
    texts = ["", *sentences(3, longest=5)]
    expected = [lively_model.generate([text], **options)[0].text for text in texts]
    batcher = ModelWorker(lively_model, static_shapes=fixed)

    async def one(text: str) -> list[str]:
        return [part async for part in batcher.stream(text, **options)]

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(one(text) for text in texts))

    found = asking(batcher, all_of_them())
    assert ["".join(parts) for parts in found] == expected
    assert all(all(parts) for parts in found)
    if not options:
        assert max(map(len, found)) > 2


def test_split_texts_stream_sentence_by_sentence_and_beams_tell_something_before_the_end(
    small_model: TextModel,
) -> None:
    batcher, text, options = ModelWorker(small_model), "the cat. a dog! I love NLP", {"split": True, "max_source": 4}

    async def work() -> None:
        assert [result.text for result in await batcher.generate([text], **options)] == [
            result.text for result in small_model.generate([text], **options)
        ]
        parts = [part async for part in batcher.stream(text, **options)]
        assert "".join(parts) == small_model.generate([text], **options)[0].text
        assert len(parts) > 1
        beams = [[part async for part in batcher.stream(each, beam=3)] for each in sentences(4)]
        assert max(map(len, beams)) > 1

    asking(batcher, work())


@pytest.mark.short(1)
@pytest.mark.parametrize("fixed", [False, True], ids=["crowd", "slots"])
def test_short_requests_come_while_a_long_one_runs_and_leave_before_it(small_model: TextModel, fixed: bool) -> None:
    batcher, order = ModelWorker(small_model, static_shapes=fixed), list[str]()

    async def one(name: str, **options: Any) -> None:
        await batcher.generate(["the cat sat"], **options)
        order.append(name)

    async def work() -> None:
        # Of the same width, so that they are in the same seats.
        long = asyncio.create_task(one("long", max_length=60, min_length=60))
        await until(lambda: batcher.num_running == 1)
        for name in ("first", "second"):
            await one(name, max_length=3, min_length=1)
        assert not long.done()
        await long

    asking(batcher, work())
    assert order == ["first", "second", "long"]


def test_a_wide_request_does_not_hold_up_narrow_ones(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    async def work() -> None:
        wide = asyncio.create_task(batcher.generate([" ".join(WORDS * 20)], max_length=400, min_length=400))
        await until(lambda: batcher.num_running == 1)
        for _ in range(3):
            assert await batcher.generate(["the cat sat"], min_length=1)
        assert not wide.done()
        assert len(batcher._scheduler._groups) == 2
        wide.cancel()
        await until(lambda: batcher.num_running == 0)

    asking(batcher, work())


def test_the_same_request_twice_is_answered_once_and_lives_as_long_as_one_listens(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    def ask(length: int) -> asyncio.Task[list[Result]]:
        return asyncio.create_task(batcher.generate(["the cat sat"], max_length=length, min_length=length))

    async def work() -> None:
        one, other, shorter = ask(60), ask(60), ask(40)
        await until(lambda: batcher.num_running == 3)
        (lane,) = batcher._scheduler._groups.values()
        assert len(lane._responses) == 2
        one.cancel()
        await shorter
        again = ask(41)  # the same but for its limit, like one that leaves
        await until(lambda: batcher.num_running == 2)
        other.cancel()
        assert len((await again)[0].ids) == 41

    asking(batcher, work())


def test_wrong_options_are_told_as_the_model_tells_them(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    async def work() -> None:
        for options in ({"beam": 4, "sample": True}, {"bream": 2}, {"prefix": ["a", "b"]}):
            with pytest.raises(UsageError):
                await batcher.generate(["the cat"], **options)
        with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
            await anext(batcher.stream("the cat", beam=2, n_best=2))
        with pytest.raises(UsageError, check=has_code("texts_not_a_list")):
            await batcher.generate("the cat")
        assert await batcher.generate([]) == []

    asking(batcher, work())


def test_more_kinds_than_take_turns_are_all_answered(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while those that take turns always have something to do."""
    monkeypatch.setattr("attendo.serve.scheduling.scheduler._MAX_OPEN_GROUPS", 2)
    monkeypatch.setattr("attendo.serve.scheduling.scheduler._MAX_STEPS_PER_GROUP", 4)
    scheduler, under_way = (
        Scheduler(small_model, BatchFactory(small_model), BatchLimits(max_batch_tokens=10_000)),
        list[tuple[int, list[JobEvent]]](),
    )

    texts = iter(sentences(400))

    def ask(seed: int, length: int) -> list[JobEvent]:
        heard: list[JobEvent] = []
        options = {"sample": True, "seed": seed, "max_length": length, "min_length": length}
        scheduler.add(ScheduledJob(GenerateJob((next(texts),), options), heard.append))
        return heard

    for seed in (0, 0, 1, 1):
        under_way.append((seed, ask(seed, 5 + len(under_way) % 2)))
        scheduler.step(0.0)
    others = [ask(seed, 3) for seed in (2, 3, 4)]
    for _ in range(100):
        scheduler.step(0.0)
        under_way = [(seed, ask(seed, 6) if heard else heard) for seed, heard in under_way]
        if all(others):
            break
    assert [type(heard[-1]) for heard in others] == [JobFinished] * 3


@pytest.mark.slow
def test_kinds_that_nobody_asks_for_are_forgotten(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)
    expected = [small_model.generate(["the cat"], sample=True, seed=seed)[0].text for seed in range(12)]

    async def work() -> list[str]:
        answers = (batcher.generate(["the cat"], sample=True, seed=seed) for seed in range(12))
        return [results[0].text for results in await asyncio.gather(*answers)]

    assert asking(batcher, work()) == expected
    assert len(batcher._scheduler._groups) == 8


def test_other_work_is_done_in_the_same_thread_between_steps(small_model: TextModel) -> None:
    batcher = ModelWorker(small_model)

    def numbers() -> Iterator[int]:
        for number in range(3):
            yield threading.get_ident() * 0 + number

    async def work() -> None:
        long = asyncio.create_task(batcher.generate(["the cat"], **LONG))
        await until(lambda: batcher.num_running == 1)
        assert [number async for number in batcher.iterate(numbers)] == [0, 1, 2]
        thread = await batcher.run(threading.get_ident)
        assert thread != threading.get_ident()
        assert not long.done()
        long.cancel()
        await until(lambda: batcher.num_running == 0)

    asking(batcher, work())


def test_a_batcher_serves_one_event_loop_after_another() -> None:
    model = random_model()
    batcher = ModelWorker(model)
    expected = model.generate(["the cat"])[0].text
    for _ in range(2):
        assert asyncio.run(batcher.generate(["the cat"]))[0].text == expected
    asyncio.run(batcher.drain())


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
def test_nobody_waits_for_what_cannot_be_seated(small_model: TextModel, heavy: dict[str, Any]) -> None:
    """Those who come later, for texts or for anything else, have their answers first."""
    batcher = ModelWorker(small_model)
    alone = [each.text for each in small_model.generate(sentences(3))]

    async def work() -> None:
        long = asyncio.create_task(batcher.generate(["the cat"], **LONGER, **heavy))
        await until(lambda: batcher.num_running == 1)
        assert [each.text for each in await batcher.generate(sentences(3))] == alone
        assert await batcher.run(lambda: 7) == 7
        assert not long.done()
        found = await long
        assert found[0].ids == small_model.generate(["the cat"], **LONGER, **heavy)[0].ids

    asking(batcher, work())


@pytest.mark.slow
def test_who_sat_down_meanwhile_goes_on_afterwards(small_model: TextModel) -> None:
    """Also where what was under way is done in torch's inference mode, whose tensors nobody else may change."""
    batcher = ModelWorker(small_model)

    def under_way() -> None:
        with torch.inference_mode():
            while batcher.num_running < 2:
                run_step_hook()

    async def work() -> None:
        piece = asyncio.create_task(batcher.run(under_way))
        await until(lambda: batcher.num_running == 1)
        longer = asyncio.create_task(batcher.generate(["a dog"], beam=3, **LONGER))
        await piece
        assert not longer.done()
        assert (await longer)[0].ids == small_model.generate(["a dog"], beam=3, **LONGER)[0].ids

    asking(batcher, work())
