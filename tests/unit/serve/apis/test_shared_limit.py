"""A limit that sentences share: side by side they are answered as one after the other, in fewer calls."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from both_ways import ABOUT
from small_server import Asking, random_model
from tiny import SOURCES

from attendo.serve.apis.openai.completion import TokenBudget
from attendo.serve.apis.openai.prompts import Prompt, PromptSegment
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result, TextModel

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "samples": {"sample": True, "seed": 5, "temperature": 1.3, "n_best": 2},
    "beam": {"beam": 3, "stop": "exhaustive", "normalise": "average"},
    "several": {"beam": 3, "n_best": 3},
}
SENTENCES = [SOURCES[number % len(SOURCES)] for number in (1, 0, 2, 3, 1, 4, 0, 2, 1, 5)]


@cache
def model() -> TextModel:
    stored = random_model(2, num_encoder_layers=1, num_decoder_layers=1).stored_model
    return TextModel(replace(stored, generation={"max_length_factor": 1.0, "max_length_extra": 6}))


class Desk:
    """Asks the model, and counts."""

    def __init__(self, **options: Any) -> None:
        self.options, self.calls = options, list[tuple[int, int | None]]()

    async def __call__(self, texts: Sequence[str], most: int | None) -> list[Result]:
        self.calls.append((len(texts), most))
        return model().generate(texts, max_length=most, **self.options)

    def shared(self, most: int, *prompts: Sequence[str]) -> list[list[Result]]:
        plain = self.options.get("beam", 1) == 1
        limit = TokenBudget(model(), ServeSettings(), most, plain)
        made = [Prompt("", tuple(map(PromptSegment, each))) for each in prompts]
        return asyncio.run(limit.generate(made, self))

    def in_turn(self, most: int, sentences: Sequence[str]) -> list[Result]:
        """What the limit means: what is left is for the next, though never more than it would have without it."""
        told, left = list[Result](), most
        for each in sentences:
            if left == 0:
                break
            own = len(model().source_tokenizer.encode(each)) + 6
            told += model().generate([each], max_length=min(left, own), **self.options)
            left -= max(len(hypothesis.ids) for hypothesis in told[-1].hypotheses)
        return told


def texts(results: Sequence[Result]) -> list[list[tuple[str, bool]]]:
    return [[(each.text, each.cut) for each in result.hypotheses] for result in results]


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_side_by_side_is_as_one_after_the_other(search: str) -> None:
    desk = Desk(**SEARCHES[search])
    for most in (1, 4, 9, 17, 30, 60):
        (found,) = desk.shared(most, SENTENCES)
        assert texts(found) == texts(desk.in_turn(most, SENTENCES)), most


def test_a_limit_that_is_not_reached_takes_one_call_and_changes_nothing() -> None:
    for options in SEARCHES.values():
        desk = Desk(**options)
        found = desk.shared(512, SENTENCES, SENTENCES[:1], [])
        assert desk.calls == [(len(SENTENCES) + 1, None)]
        assert texts(found[0]) == texts(model().generate(SENTENCES, **options))
        assert found[2] == []


@pytest.mark.short(1)
@pytest.mark.parametrize("search", SEARCHES)
def test_at_the_limit_few_are_asked_again(search: str) -> None:
    desk, sentences = Desk(**SEARCHES[search]), SENTENCES * 8
    (found,) = desk.shared(100, sentences)
    assert 10 < len(found) < len(sentences)
    assert len(desk.calls) < len(found) / 2, desk.calls


def test_a_beam_is_asked_again_wherever_the_limit_may_have_changed_it() -> None:
    """With 5 tokens left for a sentence that may have 9; how long the answer is in the end does not tell."""
    first, second = SENTENCES[:2]
    searches: list[dict[str, Any]] = [{}, {"beam": 3}]
    for options in searches:
        desk = Desk(**options)
        used, least = (len(each.best.ids) for each in model().generate([first, second], **options))
        assert least < 4
        limit = TokenBudget(model(), ServeSettings(), used + 5, single_hypothesis=not options)
        known = model().generate([first, second], **options)
        asyncio.run(limit._generate_prompt([first, second], known, desk))
        assert desk.calls == ([(1, used + 5), (1, 5)] if options else [])


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.2, "seed": 3}])
def test_a_large_limit_takes_no_more_calls_than_none(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    server = Asking(ModelSpec("forth", model(), about=ABOUT["forth"]))
    calls: list[int] = []
    answer = ModelGateway.generate

    async def counted(self: ModelGateway, served: Any, texts: Sequence[str], **options: Any) -> list[Result]:
        calls.append(len(texts))
        return await answer(self, served, texts, **options)

    monkeypatch.setattr(ModelGateway, "generate", counted)
    asked = {"messages": [{"role": "user", "content": "the cat sat.\n" * 40}], **fields}
    told = [
        server.client.post("/v1/chat/completions", json=each).json() for each in (asked, {**asked, "max_tokens": 512})
    ]
    assert calls == [40, 40]
    assert told[0]["choices"] == told[1]["choices"]
