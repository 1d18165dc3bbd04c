"""A model that computes NaN: a server error with its own code. Other requests are not affected."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import fragment
from small_server import SmallServer, check_error, parse_events, random_model
from tiny import Command, tiny_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard

BAD, GOOD = "I love NLP", "the cat sat"  # the embedding of a word in BAD is NaN
FORTH = ModelCard(task="translation", source_language="en", target_language="zh")
REQUESTS: dict[str, dict[str, Any]] = {
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
def nan_server() -> SmallServer:
    model = random_model()
    (word,) = model.source_tokenizer.encode("NLP")
    assert model.network.source is not None
    with torch.no_grad():
        model.network.source.tokens.weight[word] = float("nan")
    server = SmallServer(ModelSpec("unsound", model, about=FORTH))
    server.app.gateway.is_warm = True
    return server


@pytest.mark.parametrize("path", REQUESTS)
def test_nan_is_a_server_error(nan_server: SmallServer, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = nan_server.client.post(path, json=REQUESTS[path], headers={"x-request-id": "mine"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "mine")
    assert fragment("model_error") in response.text
    assert ('"model_error"' in response.text) == (path not in WITHOUT_CODES)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "attendo.serve"]
    assert line.startswith("a model failed: ")
    assert "NaN" in line
    assert BAD not in caplog.text


def test_nan_errors_have_a_chinese_message(nan_server: SmallServer) -> None:
    for path in ("generate", "answer"):
        error = check_error(nan_server.raw(path, **REQUESTS[f"/api/v1/{path}"]), 500, "model_error")
        assert "对数概率为 NaN" in error["message_zh"]


def test_a_stream_ends_with_the_nan_error(nan_server: SmallServer) -> None:
    *_, (name, body) = parse_events(nan_server.raw("generate", texts=[BAD], stream=True).text)
    assert (name, body["error"]["code"]) == ("error", "model_error")


def test_other_texts_succeed_and_the_server_stays_ready(nan_server: SmallServer) -> None:
    assert nan_server.raw("generate", texts=[BAD]).status_code == 500
    assert nan_server.raw("generate", texts=[GOOD]).status_code == 200
    assert nan_server.client.get("/readyz").json() == {"ready": True, "reason": None}


def test_a_model_with_nan_weights_is_not_served(attendo: Command, tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.fill_(float("nan"))
    model.save(tmp_path / "model")
    failed = attendo("serve", tmp_path / "model", "--check")
    assert (failed.code, "cannot answer" in failed.error, "NaN" in failed.error) == (4, True, True)
