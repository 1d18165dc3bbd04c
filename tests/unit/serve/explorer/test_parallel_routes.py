"""The explorer's endpoints for models that predict all tokens at once."""

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from small_server import TEXT, SmallServer
from tiny import parallel_model, tiny_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text_model import TextModel

KINDS = ("masked", "ctc", "graph")


@pytest.fixture(scope="module")
def kinds() -> SmallServer:
    models = [ModelSpec(kind, parallel_model(kind)) for kind in KINDS]
    return SmallServer(*models, ModelSpec("autoregressive", tiny_model()))


@pytest.mark.parametrize(
    ("kind", "fields"), [("masked", {"passes": 2}), ("ctc", {}), ("graph", {"graph_search": "viterbi"})]
)
def test_the_response_is_the_trace(kinds: SmallServer, kind: str, fields: dict[str, Any]) -> None:
    found = kinds.post("parallel", model=kind, **fields)
    assert found == json.loads(json.dumps(parallel_model(kind).trace_parallel(TEXT, **fields).as_json()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_that_of_generate(kinds: SmallServer, kind: str) -> None:
    (found,) = kinds.post("answer", model=kind)["hypotheses"]
    expected = parallel_model(kind).generate([TEXT])[0].best
    assert (found["text"], found["pieces"], found["cut"]) == (expected.text, list(expected.pieces), expected.cut)
    assert found["log_probability"] == pytest.approx(expected.log_probability, abs=1e-4)
    assert [each["id"] for each in found["tokens"]] == list(expected.ids)
    if kind == "masked":  # the sum of the confidences
        total = sum(each["log_probability"] for each in found["tokens"])
        assert math.isclose(total, found["log_probability"], abs_tol=1e-4)


@pytest.mark.parametrize("kind", ["masked", "graph"])
def test_merged_tokens_keep_their_own_probabilities(kind: str) -> None:
    plain, text = parallel_model(kind), "a dog ran home"
    merging = TextModel(replace(plain.stored_model, generation={"merge_repeats": True}))
    server = SmallServer(ModelSpec("merging", merging), ModelSpec("plain", plain))
    tokens = server.post("answer", model="plain", text=text)["hypotheses"][0]["tokens"]
    runs = [list(run) for _, run in itertools.groupby(tokens, key=lambda each: each["id"])]
    assert len(runs) < len(tokens)  # it repeats itself
    assert server.post("answer", model="merging", text=text)["hypotheses"][0]["tokens"] == [each[0] for each in runs]


def test_a_streamed_answer_is_one_text_and_the_end(kinds: SmallServer) -> None:
    text, done = kinds.events("answer", model="ctc", stream=True)
    assert (text[0], done[0]) == ("text", "done")
    assert text[1]["whole"] == done[1]["hypotheses"][0]["text"] == parallel_model("ctc").generate([TEXT])[0].text


def test_a_target_is_aligned(kinds: SmallServer) -> None:
    found = kinds.post("parallel", model="graph", target="猫 坐")
    assert (found["text"], found["given"]) == ("猫 坐", True)
    assert [each["piece"] for each in found["vertices"][1:-1] if each["chosen"]] == ["猫", "坐"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "autoregressive"}, "use trace"),
        ({"model": "ctc", "passes": 3}, "passes"),
        ({"model": "graph", "passes": 0}, "passes"),
        ({"model": "graph", "text": " "}, "text"),
        ({"model": "masked", "target": "猫"}, "target"),
    ],
)
def test_what_does_not_fit_is_rejected(kinds: SmallServer, fields: dict[str, Any], message: str) -> None:
    response = kinds.raw("parallel", **{"text": TEXT, **fields})
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [{"prefix": ["猫"]}, {"heads": {"decoder.0.cross": {"0": 0.0}}}, {"decoder": {"kind": "beam", "beam": 2}}],
)
def test_an_answer_without_steps_has_no_prefix_no_scaled_heads_and_no_beam(
    kinds: SmallServer, fields: dict[str, Any]
) -> None:
    response = kinds.raw("answer", model="graph", text=TEXT, **fields)
    assert response.status_code == 400, response.text
    assert "kind graph" in response.json()["error"]["message"]


def test_a_text_that_is_too_long_is_rejected(kinds: SmallServer) -> None:
    response = kinds.raw("parallel", model="ctc", text="cat " * 300)
    assert response.status_code == 413
    assert response.json()["error"]["choices"]


def test_a_target_that_is_too_long_is_rejected_before_it_is_aligned(kinds: SmallServer) -> None:
    response = kinds.raw("parallel", model="graph", text=TEXT, target="猫 " * 5000)
    assert response.status_code == 413
    assert "target" in response.json()["error"]["message"]
    assert kinds.raw("parallel", model="graph", text="cat " * 140).status_code == 413  # 8 vertices per token
