"""A model with Chinese words reads Chinese without spaces: on the command line, in the server, on the page."""

from pathlib import Path
from typing import Any

import pytest
import torch
from late_import import needs
from tiny import SIZES, SOURCES, TARGETS, Command

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model_folder import StoredModel
from attendo.text import Words
from attendo.text_model import TextModel

SPACED, TYPED = "我 看见 小 猫 了", "我看见小猫了"
MIXED = {"我 爱 NLP": "我爱NLP", SPACED: TYPED}
VOLATILE = ("seconds", "request_id", "text")  # `text` is the target as it was given


def make_model(chinese_source: bool) -> TextModel:
    chinese, english = Words.build(TARGETS), Words.build(SOURCES)
    source, target = (chinese, english) if chinese_source else (english, chinese)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    network = make_network(ModelConfig(**{**sizes, **SIZES}), torch.Generator().manual_seed(0))
    return TextModel(StoredModel(network, source, target, {"max_length_extra": 7}))


@pytest.fixture(params=[True, False], ids=["zh-en", "en-zh"])
def from_chinese(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_generate_reads_a_chinese_source_without_spaces(attendo: Command, tmp_path: Path) -> None:
    make_model(chinese_source=True).save(tmp_path / "model")
    spaced, typed = (
        attendo("generate", tmp_path / "model", "--json", given="\n".join(lines).encode())
        for lines in (MIXED.keys(), MIXED.values())
    )
    assert (typed.code, typed.errors) == (0, spaced.errors)
    assert typed.output == spaced.output


def test_score_and_trace_read_both_sides_without_spaces(attendo: Command, tmp_path: Path, from_chinese: bool) -> None:
    folder = tmp_path / "model"
    make_model(from_chinese).save(folder)
    found = []
    for chinese in (SPACED, TYPED):
        source, target = (chinese, SOURCES[3]) if from_chinese else (SOURCES[3], chinese)
        for name, text in (("a", source), ("b", target)):
            (tmp_path / name).write_text(f"{text}\n", "utf-8")
        scored = attendo("score", folder, "--source", tmp_path / "a", "--target", tmp_path / "b")
        traced = attendo("trace", folder, source, "--target", target)
        assert (scored.errors, traced.errors) == ("", "")
        found.append((scored.output, [line for line in traced.output.splitlines() if "µs" not in line]))
    assert found[0] == found[1]


@needs("fastapi")
def test_server_and_page_read_chinese_without_spaces(from_chinese: bool) -> None:
    from starlette.testclient import TestClient

    from attendo.serve.app import create_app
    from attendo.serve.scheduling.registry import ModelSpec

    model = make_model(from_chinese)
    client: Any = TestClient(create_app([ModelSpec("tiny", model)]), base_url="http://localhost")
    with client:
        for path in ("generate", "answer", "steps", "trace"):
            found = []
            for chinese in (SPACED, TYPED):
                source, target = (chinese, SOURCES[3]) if from_chinese else (SOURCES[3], chinese)
                body = {"texts": [source]} if path == "generate" else {"text": source}
                response = client.post(f"/api/v1/{path}", json={**body, "target": target} if path == "trace" else body)
                assert response.status_code == 200, response.text
                found.append({name: each for name, each in response.json().items() if name not in VOLATILE})
            assert found[0] == found[1], path
