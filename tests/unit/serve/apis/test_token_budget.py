"""A token limit shared by sentences: a batch gives the same results as one by one, in fewer calls."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from small_server import SmallServer, random_model
from three_models import MODEL_CARDS
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


class RecordingModel:
    """Runs the model and records its calls."""

    def __init__(self, **options: Any) -> None:
        self.options, self.calls = options, list[tuple[int, int | None]]()

    async def __call__(self, texts: Sequence[str], limit: int | None) -> list[Result]:
        self.calls.append((len(texts), limit))
        return model().generate(texts, max_length=limit, **self.options)

    def generate_shared(self, limit: int, *prompts: Sequence[str]) -> list[list[Result]]:
        plain = self.options.get("beam", 1) == 1
        budget = TokenBudget(model(), ServeSettings(), limit, plain)
        made = [Prompt("", tuple(map(PromptSegment, each))) for each in prompts]
        return asyncio.run(budget.generate(made, self))

    def generate_in_order(self, limit: int, sentences: Sequence[str]) -> list[Result]:
        """The definition of the limit: each sentence may use what is left, at most its own limit."""
        results, left = list[Result](), limit
        for each in sentences:
            if left == 0:
                break
            own_limit = len(model().source_tokenizer.encode(each)) + 6
            results += model().generate([each], max_length=min(left, own_limit), **self.options)
            left -= max(len(hypothesis.ids) for hypothesis in results[-1].hypotheses)
        return results


def texts(results: Sequence[Result]) -> list[list[tuple[str, bool]]]:
    return [[(each.text, each.cut) for each in result.hypotheses] for result in results]


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_batched_generation_equals_one_by_one(search: str) -> None:
    recorder = RecordingModel(**SEARCHES[search])
    for limit in (1, 4, 9, 17, 30, 60):
        (found,) = recorder.generate_shared(limit, SENTENCES)
        assert texts(found) == texts(recorder.generate_in_order(limit, SENTENCES)), limit


def test_an_unreached_limit_needs_one_call() -> None:
    for options in SEARCHES.values():
        recorder = RecordingModel(**options)
        found = recorder.generate_shared(512, SENTENCES, SENTENCES[:1], [])
        assert recorder.calls == [(len(SENTENCES) + 1, None)]
        assert texts(found[0]) == texts(model().generate(SENTENCES, **options))
        assert found[2] == []


@pytest.mark.short(1)
@pytest.mark.parametrize("search", SEARCHES)
def test_few_sentences_are_regenerated_at_the_limit(search: str) -> None:
    recorder, sentences = RecordingModel(**SEARCHES[search]), SENTENCES * 8
    (found,) = recorder.generate_shared(100, sentences)
    assert 10 < len(found) < len(sentences)
    assert len(recorder.calls) < len(found) / 2, recorder.calls


def test_a_beam_is_regenerated_if_the_limit_may_affect_it() -> None:
    """5 tokens are left for a sentence that may have 9. The final length does not show if that changed the beam."""
    first, second = SENTENCES[:2]
    searches: list[dict[str, Any]] = [{}, {"beam": 3}]
    for options in searches:
        recorder = RecordingModel(**options)
        used, least = (len(each.best.ids) for each in model().generate([first, second], **options))
        assert least < 4
        budget = TokenBudget(model(), ServeSettings(), used + 5, single_hypothesis=not options)
        known = model().generate([first, second], **options)
        asyncio.run(budget._generate_prompt([first, second], known, recorder))
        assert recorder.calls == ([(1, used + 5), (1, 5)] if options else [])


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.2, "seed": 3}])
def test_a_large_limit_adds_no_calls(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    server = SmallServer(ModelSpec("forth", model(), about=MODEL_CARDS["forth"]))
    calls: list[int] = []
    generate = ModelGateway.generate

    async def generate_and_count(self: ModelGateway, served: Any, texts: Sequence[str], **options: Any) -> list[Result]:
        calls.append(len(texts))
        return await generate(self, served, texts, **options)

    monkeypatch.setattr(ModelGateway, "generate", generate_and_count)
    body = {"messages": [{"role": "user", "content": "the cat sat.\n" * 40}], **fields}
    completions = [
        server.client.post("/v1/chat/completions", json=each).json() for each in (body, {**body, "max_tokens": 512})
    ]
    assert calls == [40, 40]
    assert completions[0]["choices"] == completions[1]["choices"]
