"""The native API: /generate and /score return what the model returns, for every option."""

from typing import Any

import pytest
from small_server import API, TEXT, SmallServer, check_error, parse_events
from tiny import SOURCES, TARGETS

from attendo.decode.config import GenerationConfig
from attendo.decode.options import GenerationFields, list_options
from attendo.serve.apis.native import DecodingOptions, GenerateRequest
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import GenerateOptions, TextModel
from attendo.text_model.results import result_to_dict

SERVER_OPTIONS = {"engine", "compile", "precision", "batch_tokens", "max_source"}
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
    {"replace_unknown": True, "transfer_case": True},
    {"keep": ["placeholders", "numbers"], "do_not_translate": ["cat"]},
    {"check": "report"},
    {"check": "repair", "check_detached": True},
    {"coverage_penalty": 0.2, "beam": 2},
    {"max_length": 3, "min_length": 2, "at_limit": "force_eos", "counts_eos": False},
    {"max_length_factor": 0.5, "max_length_extra": 1, "min_length_factor": 0.1, "min_length_extra": 1},
]


def test_every_option_but_server_options_is_a_field() -> None:
    known = {*(field.name for field in list_options(GenerateOptions)), *GenerationConfig.model_fields}
    assert set(DecodingOptions.model_fields) == known - SERVER_OPTIONS
    used = {name for options in OPTIONS for name in options}
    of_other_kinds = {"passes", "length_candidates", "graph_search", "path_length_penalty", "merge_repeats"}
    assert known - SERVER_OPTIONS - used - of_other_kinds == {
        *("split", "long_source", "source_prefix", "source_suffix", "target_prefix", "context_sentences")
    }


@pytest.mark.short(3)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "none")
def test_generate_equals_the_model(server: SmallServer, small_model: TextModel, options: dict[str, Any]) -> None:
    texts = [TEXT, "", SOURCES[1]]
    response = server.raw("generate", texts=texts, **options)
    assert response.status_code == 200, response.text
    body, expected = response.json(), small_model.generate(texts, **options)
    assert body["model"] == "small"
    assert [each["text"] for each in body["results"]] == [each.text for each in expected]
    for each, result in zip(body["results"], expected, strict=True):
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
def test_old_names_of_options_are_accepted(server: SmallServer, old: dict[str, Any], new: dict[str, Any]) -> None:
    response = server.raw("generate", texts=[TEXT], **old)
    assert response.status_code == 200, response.text
    assert response.json() == server.raw("generate", texts=[TEXT], **new).json()


def test_both_names_of_an_option_are_a_bad_request(server: SmallServer) -> None:
    response = server.raw("generate", texts=[TEXT], beam=4, groups=2, beam_groups=2)
    error = check_error(response, 400, "bad_request")
    assert error["param"] == "groups"
    assert "beam_groups" in error["message"]


def test_schema_bounds_are_the_declared_bounds() -> None:
    properties = GenerateRequest.model_json_schema()["properties"]
    for field in list_options(GenerationFields):
        info = field.metadata["option"]
        if field.name in properties and info.bounds:
            (kind, _) = properties[field.name]["anyOf"]
            found = {name: kind.get(name) for name in ("minimum", "maximum", "maxItems")}
            assert found == {"minimum": info.ge, "maximum": info.le, "maxItems": info.max_items}, field.name
            assert properties[field.name]["description"] == info.description


@pytest.mark.parametrize(
    "options", [{}, {"beam": 3}, {"sample": True, "seed": 3}, {"beam": 2, "banned_phrases": ["猫"]}]
)
def test_a_stream_ends_with_the_plain_response(server: SmallServer, options: dict[str, Any]) -> None:
    response = server.raw("generate", texts=[TEXT], stream=True, **options)
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, (last, final) = parse_events(response.text)
    assert (last, {name for name, _ in parts}) == ("done", {"text"})
    assert final == server.raw("generate", texts=[TEXT], **options).json()
    assert "".join(part["text"] for _, part in parts) == final["results"][0]["text"]


def test_the_stable_prefix_of_a_beam_is_streamed_early(server: SmallServer) -> None:
    events = parse_events(server.raw("generate", texts=["a dog ran home"], stream=True, beam=3).text)
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
def test_bad_requests_are_rejected_before_a_stream_begins(
    server: SmallServer, status: int, code: str, body: dict[str, Any], stream: bool
) -> None:
    check_error(server.raw("generate", **body, stream=stream), status, code)


def test_a_library_error_has_its_code_as_cause(server: SmallServer) -> None:
    error = check_error(server.raw("generate", texts=[TEXT], beam=2, sample=True), 400, "bad_setting")
    assert error["cause"] == "sample_beam_conflict"
    assert "cause" not in check_error(server.raw("generate", texts=[TEXT], beam=13), 400, "above_limit")


def test_a_stream_accepts_one_text(server: SmallServer) -> None:
    check_error(server.raw("generate", texts=[TEXT, TEXT], stream=True), 400, "one_text_a_stream")
    check_error(server.raw("generate", texts=[TEXT] * 51), 413, "too_many_texts")


def test_scores_equal_the_model(server: SmallServer, small_model: TextModel) -> None:
    sources, targets = [*SOURCES, "", TEXT] * 3, [*TARGETS, "猫", ""] * 3
    pairs = [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]
    expected = small_model.score_tokens(sources, targets)
    plain = server.raw("score", pairs=pairs).json()["scores"]
    assert all(each.keys() == {"log_probability", "tokens"} for each in plain)
    assert [each["log_probability"] for each in plain] == pytest.approx([each.log_probability for each in expected])
    normalised = server.raw("score", pairs=pairs, normalise=True, tokens=True).json()["scores"]
    for each, scored in zip(normalised, expected, strict=True):
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
def test_bad_pairs_are_rejected(server: SmallServer, status: int, code: str, body: dict) -> None:
    check_error(server.raw("score", **body), status, code)


def test_native_routes_require_a_key(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(keys=("right",)))
    routes = [("POST", "generate"), ("POST", "score"), ("POST", "trace"), ("GET", "models"), ("GET", "formulas")]
    for method, path in routes:
        fields = {"texts": [TEXT]} if method == "POST" else None
        check_error(server.client.request(method, f"{API}/{path}", json=fields), 401, "no_key")
        wrong = {"authorization": "Bearer wrong"}
        check_error(server.client.request(method, f"{API}/{path}", json=fields, headers=wrong), 401, "bad_key")
    right = {"authorization": "Bearer right"}
    body = server.client.post(f"{API}/generate", json={"texts": [TEXT]}, headers=right).json()
    assert body["results"][0]["text"] == small_model.generate([TEXT])[0].text
    assert server.client.get("/").status_code == server.client.get("/page/key.js").status_code == 200
