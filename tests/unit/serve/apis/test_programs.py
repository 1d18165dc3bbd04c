"""/generate and /score say what the model says, with every option that it has."""

from dataclasses import fields
from typing import Any

import pytest
from small_server import API, TEXT, Asking, error_of, parsed_events
from tiny import SOURCES, TARGETS

from attendo.decode.config import GenerationConfig
from attendo.decode.options import GenerationFields, list_options
from attendo.serve.apis.native_schemas import DecodingOptions, GenerateRequest
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import GenerateOptions, TextModel
from attendo.text_model.results import result_to_dict

OF_THE_MACHINE = {"engine", "compile", "precision", "batch_tokens", "max_source"}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 3, "n_best": 3},
    {"beam": 3, "n_best": 3, "distinct": False},
    {"beam": 4, "beam_groups": 2, "diversity_penalty": 1.0},
    {"beam": 3, "stop": "first", "patience": 2.0, "normalise": "gnmt", "length_penalty": 0.6, "word_penalty": 0.1},
    {"sample": True, "seed": 5, "temperature": 1.5, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95},
    {"sample": True, "n_best": 4},
    {"sample": True, "seed": -(2**63)},
    {"preset": "marian", "beam": 2},
    {"mbr": "chrf", "mbr_candidates": 4, "sample": True, "seed": 2},
    {"prefix": "猫"},
    {"prefix": ["猫", "狗", "猫 坐"]},
    {"beam": 2, "constraints": ["狗"]},
    {"beam": 2, "constraints": [["狗"], [], ["猫"]]},
    {"banned_phrases": ["猫"], "no_repeat_ngram_size": 2, "allow_unk": False, "renormalise": True},
    {"repetition_penalty": 1.5, "repetition_of": "logits"},
    {"alignments": True},
    {"coverage_penalty": 0.2, "beam": 2},
    {"max_length": 3, "min_length": 2, "at_limit": "force_eos", "counts_eos": False},
    {"max_length_factor": 0.5, "max_length_extra": 1, "min_length_factor": 0.1, "min_length_extra": 1},
]


def test_every_option_of_the_library_can_be_asked_for_but_those_of_the_machine() -> None:
    known = {*(field.name for field in fields(GenerateOptions)), *GenerationConfig.model_fields}
    assert set(DecodingOptions.model_fields) == known - OF_THE_MACHINE
    tried = {name for options in OPTIONS for name in options}
    assert known - OF_THE_MACHINE - tried == {"split", "long_source", "source_prefix", "target_prefix"}


@pytest.mark.short(3)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "none")
def test_answers_are_those_of_the_model(server: Asking, small_model: TextModel, options: dict[str, Any]) -> None:
    texts = [TEXT, "", SOURCES[1]]
    answered = server.raw("generate", texts=texts, **options)
    assert answered.status_code == 200, answered.text
    told, meant = answered.json(), small_model.generate(texts, **options)
    assert told["model"] == "small"
    assert [each["text"] for each in told["results"]] == [each.text for each in meant]
    for each, result in zip(told["results"], meant, strict=True):
        plain = result_to_dict(result, all_hypotheses="n_best" in options)
        assert each.keys() == plain.keys()
        assert each["score"] == pytest.approx(result.score, abs=1e-5)
        assert each["ids"] == list(result.ids)
        hypotheses = [other["text"] for other in each.get("hypotheses", [])]
        assert hypotheses == ([other.text for other in result.hypotheses] if "n_best" in options else [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"like": "marian", "beam": 2}, {"preset": "marian", "beam": 2}),
        ({"ban": ["猫"], "no_repeat_ngram": 2}, {"banned_phrases": ["猫"], "no_repeat_ngram_size": 2}),
        ({"max_length": 3, "at_limit": "end"}, {"max_length": 3, "at_limit": "force_eos"}),
    ],
)
def test_old_names_of_options_are_accepted(server: Asking, old: dict[str, Any], new: dict[str, Any]) -> None:
    answered = server.raw("generate", texts=[TEXT], **old)
    assert answered.status_code == 200, answered.text
    assert answered.json() == server.raw("generate", texts=[TEXT], **new).json()


def test_both_names_of_an_option_are_a_bad_request(server: Asking) -> None:
    answered = server.raw("generate", texts=[TEXT], beam=4, groups=2, beam_groups=2)
    error = error_of(answered, 400, "bad_request")
    assert error["param"] == "groups"
    assert "beam_groups" in error["message"]


def test_bounds_are_those_that_are_declared() -> None:
    described = GenerateRequest.model_json_schema()["properties"]
    for field in list_options(GenerationFields):
        info = field.metadata["option"]
        if field.name in described and info.bounds:
            (kind, _) = described[field.name]["anyOf"]
            found = {name: kind.get(name) for name in ("minimum", "maximum", "maxItems")}
            assert found == {"minimum": info.ge, "maximum": info.le, "maxItems": info.max_items}, field.name
            assert described[field.name]["description"] == info.description


@pytest.mark.parametrize(
    "options", [{}, {"beam": 3}, {"sample": True, "seed": 3}, {"beam": 2, "banned_phrases": ["猫"]}]
)
def test_a_stream_ends_with_all_that_an_answer_tells(server: Asking, options: dict[str, Any]) -> None:
    answered = server.raw("generate", texts=[TEXT], stream=True, **options)
    assert answered.headers["content-type"].startswith("text/event-stream")
    *parts, (last, whole) = parsed_events(answered.text)
    assert (last, {name for name, _ in parts}) == ("done", {"text"})
    assert whole == server.raw("generate", texts=[TEXT], **options).json()
    assert "".join(part["text"] for _, part in parts) == whole["results"][0]["text"]


def test_the_stable_beginning_of_a_beam_comes_before_its_end(server: Asking) -> None:
    events = parsed_events(server.raw("generate", texts=["a dog ran home"], stream=True, beam=3).text)
    assert [name for name, _ in events] == ["text", "text", "done"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "code", "body"),
    [
        (400, "bad_request", {"texts": []}),
        (400, "bad_request", {"texts": "a"}),
        (400, "bad_request", {"texts": [TEXT], "engine": "textbook"}),
        (400, "bad_request", {"texts": [TEXT], "beem": 4}),
        (400, "bad_request", {"texts": [TEXT], "temperature": 0}),
        (400, "bad_setting", {"texts": [TEXT], "beam": 4, "beam_groups": 3}),
        (400, "bad_setting", {"texts": [TEXT], "beam": 2, "sample": True}),
        (400, "bad_setting", {"texts": [TEXT], "prefix": "nobody"}),
        (400, "bad_setting", {"texts": [TEXT], "prefix": "猫 " * 513}),
        (400, "bad_setting", {"texts": [TEXT], "target_prefix": ["<x>"]}),
        (400, "above_limit", {"texts": [TEXT], "beam": 13}),
        (400, "above_limit", {"texts": [TEXT], "max_length": 513}),
        (404, "unknown_model", {"texts": [TEXT], "model": "nobody"}),
        (413, "text_too_long", {"texts": ["a" * 5001]}),
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_stream_begins(
    server: Asking, status: int, code: str, body: dict[str, Any], stream: bool
) -> None:
    error_of(server.raw("generate", **body, stream=stream), status, code)


def test_an_error_of_the_library_is_named_by_its_own_code(server: Asking) -> None:
    error = error_of(server.raw("generate", texts=[TEXT], beam=2, sample=True), 400, "bad_setting")
    assert error["cause"] == "sample_beam_conflict"
    assert "cause" not in error_of(server.raw("generate", texts=[TEXT], beam=13), 400, "above_limit")


def test_a_stream_is_of_one_text(server: Asking) -> None:
    error_of(server.raw("generate", texts=[TEXT, TEXT], stream=True), 400, "one_text_a_stream")
    error_of(server.raw("generate", texts=[TEXT] * 51), 413, "too_many_texts")


def test_scores_are_those_of_the_model(server: Asking, small_model: TextModel) -> None:
    sources, targets = [*SOURCES, "", TEXT] * 3, [*TARGETS, "猫", ""] * 3
    pairs = [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]
    meant = small_model.score_tokens(sources, targets)
    plain = server.raw("score", pairs=pairs).json()["scores"]
    assert all(each.keys() == {"log_probability", "tokens"} for each in plain)
    assert [each["log_probability"] for each in plain] == pytest.approx([each.log_probability for each in meant])
    normalised = server.raw("score", pairs=pairs, normalise=True, tokens=True).json()["scores"]
    for each, scored in zip(normalised, meant, strict=True):
        assert each["log_probability"] == pytest.approx(scored.log_probability / len(scored.pieces))
        assert (each["pieces"], each["tokens"]) == (list(scored.pieces), len(scored.pieces))
        assert each["log_probabilities"] == pytest.approx(scored.log_probabilities)


@pytest.mark.parametrize(
    ("status", "code", "body"),
    [
        (400, "bad_request", {"pairs": []}),
        (400, "bad_request", {"pairs": [["a", "b"]]}),
        (400, "bad_request", {"pairs": [{"source": "a"}]}),
        (404, "unknown_model", {"pairs": [{"source": "a", "target": "b"}], "model": "x"}),
        (413, "too_many_texts", {"pairs": [{"source": "a", "target": "b"}] * 51}),
        (413, "text_too_long", {"pairs": [{"source": "a", "target": "b" * 5001}]}),
        (413, "pair_too_long", {"pairs": [{"source": "a", "target": "猫 " * 512}]}),
        (413, "pair_too_long", {"pairs": [{"source": "cat " * 1024, "target": "猫"}]}),
    ],
)
def test_pairs_that_cannot_be_scored_are_refused(server: Asking, status: int, code: str, body: dict) -> None:
    error_of(server.raw("score", **body), status, code)


def test_our_own_api_wants_the_key(small_model: TextModel) -> None:
    server = Asking(ModelSpec("small", small_model), settings=ServeSettings(keys=("right",)))
    asked = [("POST", "generate"), ("POST", "score"), ("POST", "trace"), ("GET", "models"), ("GET", "formulas")]
    for method, path in asked:
        body = {"texts": [TEXT]} if method == "POST" else None
        error_of(server.client.request(method, f"{API}/{path}", json=body), 401, "no_key")
        wrong = {"authorization": "Bearer wrong"}
        error_of(server.client.request(method, f"{API}/{path}", json=body, headers=wrong), 401, "bad_key")
    right = {"authorization": "Bearer right"}
    told = server.client.post(f"{API}/generate", json={"texts": [TEXT]}, headers=right).json()
    assert told["results"][0]["text"] == small_model.generate([TEXT])[0].text
    assert server.client.get("/").status_code == server.client.get("/page/key.js").status_code == 200
