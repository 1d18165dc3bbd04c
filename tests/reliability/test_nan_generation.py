"""A NaN log-probability raises an error that names the text and does not affect other texts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, tiny_model

from attendo.decode.engines import FastEngine
from attendo.errors import ModelError
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.worker import BatchLimits, ModelWorker
from attendo.text_model import NotANumberError, TextModel, load

NAN_TEXT = "I love NLP"  # the embedding of NLP is NaN
TEXTS = [*SOURCES[1:], NAN_TEXT, *SOURCES[1:]]
DECODING_OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 3},
    {"sample": True},
    {"beam": 4, "beam_groups": 2},
    {"mbr": "chrf"},
]


@pytest.fixture
def model() -> TextModel:
    model = tiny_model()
    (word,) = model.source_tokenizer.encode("NLP")
    assert model.network.source is not None
    with torch.no_grad():
        model.network.source.tokens.weight[word] = float("nan")
    return model


@pytest.mark.short(2)
@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
@pytest.mark.parametrize("options", DECODING_OPTIONS, ids=str)
def test_every_engine_reports_the_text_with_nan(model: TextModel, engine: str, options: dict[str, Any]) -> None:
    with pytest.raises(
        NotANumberError,
        check=has_code(
            "text_log_probability_nan", precision="auto", text=has_code("text_position", position=4, total=7)
        ),
    ) as raised:
        model.generate(TEXTS, engine=engine, **options)
    assert raised.value.number == 3


@pytest.mark.parametrize(
    "options", [{"beam": 2, "constraints": ["猫"]}, {"banned_phrases": ["猫"]}, {"coverage_penalty": 0.2}]
)
def test_every_search_option_reports_the_text_with_nan(model: TextModel, options: dict[str, Any]) -> None:
    with pytest.raises(
        NotANumberError, check=has_code("text_log_probability_nan", text=has_code("text_position", position=4, total=7))
    ):
        model.generate(TEXTS, **options)


def test_streams_alternatives_and_scores_report_nan(model: TextModel) -> None:
    with pytest.raises(
        NotANumberError, check=has_code("text_log_probability_nan", text=has_code("text_position", position=1, total=1))
    ):
        list(model.stream(NAN_TEXT))
    with pytest.raises(ModelError, check=has_code("answer_log_probability_nan")):
        model.alternatives(NAN_TEXT)
    with pytest.raises(
        NotANumberError, check=has_code("text_log_probability_nan", text=has_code("text_position", position=2, total=2))
    ):
        model.score(["the cat", NAN_TEXT], ["猫", "猫"])


def test_next_request_in_the_slot_is_unaffected_by_nan(model: TextModel) -> None:
    """The next request in the same slot must not read its NaN values, not even with weight 0."""
    expected = [result.ids for result in model.generate(SOURCES[1:])]
    call = model.prepare_call([NAN_TEXT, *SOURCES[1:]])
    requests, strategy, rules = call.prepare_search()
    engine = FastEngine(model.network, 1)
    found: dict[int, Sequence[int]] = {}
    for each in requests:
        for answers in engine.generate([each], strategy, rules):
            for request, frontier in answers.split():
                found[request.request_id] = frontier.ids[0].tolist()
    assert [tuple(i for i in found[each.request_id][1:] if i > 3) for each in requests[1:]] == [
        tuple(i for i in ids if i > 3) for ids in expected
    ]


@pytest.mark.short(2)
@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
@pytest.mark.parametrize("options", [{}, {"beam": 2}], ids=["greedy", "beam"])
def test_nan_fails_one_request_of_a_server(model: TextModel, static: bool, options: dict[str, Any]) -> None:
    expected = [each.text for each in model.generate(SOURCES[1:], **options)]
    worker = ModelWorker(model, BatchLimits(max_batch_size=2), static)

    async def generate_all() -> list[Any]:
        tasks = [worker.generate([text], **options) for text in TEXTS]
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await worker.drain()

    found = asyncio.run(generate_all())
    assert isinstance(found[3], ApiError | NotANumberError)
    assert [each[0].text for n, each in enumerate(found) if n != 3] == expected * 2


def test_nan_error_names_the_precision(tmp_path: Path) -> None:
    model = tiny_model(tie="none")
    with torch.no_grad():
        model.network.output.weight.mul_(1e6)
    model.save(tmp_path)
    with pytest.raises(NotANumberError, check=has_code("text_log_probability_nan", precision="fp16")):
        load(tmp_path, "cpu").generate(["the cat"], precision="fp16")
    assert load(tmp_path, "cpu").generate(["the cat"], precision="bf16")[0].log_probability <= 0
