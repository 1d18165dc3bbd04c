"""A model that computes what is no number: a fault of the server by its own name, and nobody else's trouble."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import fragment
from small_server import Asking, error_of, parsed_events, random_model
from tiny import Command, tiny_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard

BAD, GOOD = "I love NLP", "the cat sat"  # a word of the first is no number
FORTH = ModelCard(task="translation", source_language="en", target_language="zh")
ASKED: dict[str, dict[str, Any]] = {
    "/api/v1/generate": {"texts": [GOOD, BAD]},
    "/api/v1/score": {"pairs": [{"source": BAD, "target": "猫"}]},
    "/api/v1/answer": {"text": BAD},
    "/translate": {"q": BAD, "source": "en", "target": "zh"},
    "/v2/translate": {"text": [BAD], "target_lang": "ZH"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": BAD}]},
    "/hf/translation": {"inputs": BAD},
}
WITHOUT_CODES = ("/translate", "/hf/translation")


@pytest.fixture(scope="module")
def unsound() -> Asking:
    model = random_model()
    (word,) = model.source_tokenizer.encode("NLP")
    assert model.network.source is not None
    with torch.no_grad():
        model.network.source.tokens.weight[word] = float("nan")
    server = Asking(ModelSpec("unsound", model, about=FORTH))
    server.app.gateway.is_warm = True
    return server


@pytest.mark.parametrize("path", ASKED)
def test_it_is_no_fault_of_whoever_asks(unsound: Asking, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answered = unsound.client.post(path, json=ASKED[path], headers={"x-request-id": "mine"})
    assert (answered.status_code, answered.headers["x-request-id"]) == (500, "mine")
    assert fragment("model_error") in answered.text
    assert ('"model_error"' in answered.text) == (path not in WITHOUT_CODES)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "attendo.serve"]
    assert line.startswith("a model failed: ")
    assert "NaN" in line
    assert BAD not in caplog.text


def test_it_is_told_in_chinese_too(unsound: Asking) -> None:
    for path in ("generate", "answer"):
        error = error_of(unsound.raw(path, **ASKED[f"/api/v1/{path}"]), 500, "model_error")
        assert "对数概率为 NaN" in error["message_zh"]


def test_a_stream_that_has_begun_ends_with_it(unsound: Asking) -> None:
    *_, (name, told) = parsed_events(unsound.raw("generate", texts=[BAD], stream=True).text)
    assert (name, told["error"]["code"]) == ("error", "model_error")


def test_other_texts_are_answered_and_the_server_stays_ready(unsound: Asking) -> None:
    assert unsound.raw("generate", texts=[BAD]).status_code == 500
    assert unsound.raw("generate", texts=[GOOD]).status_code == 200
    assert unsound.client.get("/readyz").json() == {"ready": True, "reason": None}


def test_one_that_answers_nothing_is_never_served(attendo: Command, tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.fill_(float("nan"))
    model.save(tmp_path / "model")
    failed = attendo("serve", tmp_path / "model", "--check")
    assert (failed.code, "cannot answer" in failed.error, "NaN" in failed.error) == (4, True, True)
