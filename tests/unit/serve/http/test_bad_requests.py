"""Bad requests are rejected in both languages. The error names the field, the value and a fix. It is never a 500."""

from typing import Any

import pytest
from error_codes import fragment, message
from small_server import API, HOSTILE, POSTS, TEXT, SmallServer, check_error, random_model

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

BODIES: list[tuple[str, bytes]] = [
    ("bad_json", b"{"),
    ("bad_json", b'{"text": NaN}'),
    ("bad_json", b"{" + b",".join(b'"n%d": 1' % n for n in range(1_001)) + b"}"),
    ("bad_json", b'{"text": "x", "heads": {"decoder.0.cross": {"0": Infinity}}}'),
    ("bad_json", b'{"text": "\\ud800"}'),
    ("bad_json", b'{"text": "\xff"}'),
    ("bad_json", b"[" * 5000),
    ("bad_json", b'{"text": "x"} trailing'),
    ("bad_request", b""),
    ("bad_request", b"[]"),
    ("bad_request", b"null"),
    ("bad_request", b'"text"'),
    ("bad_request", b"{}"),
    ("bad_request", b'{"text": 5}'),
    ("bad_request", b'{"text": null}'),
    ("bad_request", b'{"text": ["I"]}'),
    ("bad_request", b'{"text": "I", "bean": 4}'),
    ("bad_request", b'{"text": "I", "model": 3}'),
    ("bad_request", b'{"text": "I", "decoder": "greedy"}'),
    ("bad_request", b'{"text": "I", "decoder": {"kind": "beem"}}'),
    ("bad_request", b'{"text": "I", "decoder": {"beam": 0}}'),
    ("bad_request", b'{"text": "I", "decoder": {"beam": 1000000000000000000000000}}'),
    ("bad_request", b'{"text": "I", "decoder": {"beam": 2.5}}'),
    ("bad_request", b'{"text": "I", "decoder": {"beam": true}}'),
    ("bad_request", b'{"text": "I", "decoder": {"temperature": 0}}'),
    ("bad_request", b'{"text": "I", "decoder": {"temperature": 1e999}}'),
    ("bad_request", b'{"text": "I", "decoder": {"top_p": "0.5"}}'),
    ("bad_request", b'{"text": "I", "decoder": {"n_best": -1}}'),
    ("bad_request", b'{"text": "I", "decoder": {"max_length": 100000}}'),
    ("bad_request", b'{"text": "I", "decoder": {"coverage_penalty": 1}}'),
    ("empty_text", b'{"text": ""}'),
    ("empty_text", b'{"text": " \\n\\t "}'),
]


@pytest.mark.parametrize(("code", "body"), BODIES)
def test_bad_bodies_are_rejected(server: SmallServer, code: str, body: bytes) -> None:
    response = server.client.post(f"{API}/trace", content=body, headers={"content-type": "application/json"})
    check_error(response, 400, code)


@pytest.mark.short(3)
@pytest.mark.parametrize("path", POSTS)
def test_every_endpoint_rejects_the_same_errors(server: SmallServer, path: str) -> None:
    server.post_error(path, 400, "empty_text", text="")
    server.post_error(path, 404, "unknown_model", text=TEXT, model="nobody")
    server.post_error(path, 404, "unknown_checkpoint", text=TEXT, checkpoint="step-00000001")
    server.post_error(path, 404, "unknown_checkpoint", text=TEXT, checkpoint="../../model")
    server.post_error(path, 400, "unknown_site", text=TEXT, heads={"decoder.9.cross": {"0": 0.0}})
    for head in ("2", "-1", "x", "²", "1" * 40, ""):
        server.post_error(path, 400, "unknown_head", text=TEXT, heads={"decoder.0.cross": {head: 0.0}})
    server.post_error(path, 400, "bad_request", text=TEXT, heads={"decoder.0.cross": {"0": -1}})
    error = server.post_error(path, 413, "too_long", text="cat " * 1999 + "cat")
    assert "2001 tokens" in error["message"]


def test_a_mistyped_name_gets_a_suggestion(server: SmallServer) -> None:
    error = server.post_error("answer", 400, "bad_request", text=TEXT, decoder={"kind": "beam", "lenght_penalty": 1.0})
    suggestion = " (did you mean length_penalty?)"
    assert error["message"] == message("field_extra_forbidden", name="decoder.lenght_penalty", suggestion=suggestion)
    assert error["message_zh"] == "未知参数 decoder.lenght_penalty（是否指 length_penalty？）"


def test_allowed_values_are_listed_in_both_languages(server: SmallServer) -> None:
    error = server.post_error("answer", 400, "bad_request", text=TEXT, decoder={"kind": "beem"})
    assert error["message"] == message(
        "field_literal_error", name="decoder.kind", expected="'greedy', 'beam' or 'sample'"
    )
    assert error["message_zh"] == "decoder.kind 必须是以下之一：'greedy'、'beam'、'sample'"


def test_every_error_of_a_request_is_listed(server: SmallServer) -> None:
    error = server.post_error("answer", 400, "bad_request", text=5, decoder={"kind": "beam", "beam": 99})
    text, beam = message("field_string_type", name="text"), message("field_less_than_equal", name="decoder.beam", le=12)
    assert error["message"] == f"{text}; {beam}"


def test_incompatible_settings_are_rejected(server: SmallServer) -> None:
    error = server.post_error(
        "answer", 400, "bad_setting", text=TEXT, decoder={"kind": "beam", "beam": 4, "beam_groups": 3}
    )
    assert fragment("beam_not_divisible_by_groups") in error["message"]
    assert error["message_zh"] == "beam 必须是 beam_groups 的倍数：现为 4 和 3"
    for decoder in ({"min_length": 5, "max_length": 2}, {"kind": "beam", "beam_groups": 2, "stop": "leader"}):
        error = server.post_error("answer", 400, "bad_setting", text=TEXT, decoder=decoder)
        assert error["message"] not in error["message_zh"]


@pytest.mark.parametrize(
    ("path", "code", "fields"),
    [
        ("trace", "unknown_layer", {"layers": [0, 2]}),
        ("trace", "bad_request", {"layers": [-1]}),
        ("trace", "bad_request", {"layers": [0.5]}),
        ("mask", "unknown_layer", {"layer": 2}),
        ("mask", "unknown_head", {"head": 2}),
        ("mask", "bad_request", {"head": None}),
        ("calculation", "unknown_operation", {"operation": "decoder.0.cross.nothing"}),
        ("calculation", "unknown_operation", {"operation": "decoder.9.cross.scores"}),
        ("calculation", "unknown_head", {"operation": "decoder.0.cross.scores", "head": 9}),
        ("calculation", "cell_out_of_range", {"operation": "decoder.0.cross.scores", "row": 99}),
        ("steps", "unknown_piece", {"prefix": ["nobody"]}),
        ("steps", "unknown_piece", {"prefix": [10**9]}),
        ("steps", "forced_control", {"prefix": ["<s>"]}),
        ("steps", "forced_control", {"prefix": ["</s>", "猫"]}),
        ("steps", "forced_control", {"prefix": [0]}),
        ("steps", "bad_request", {"prefix": [None]}),
        ("steps", "bad_request", {"prefix": [1.5]}),
        ("steps", "bad_request", {"prefix": "猫"}),
        ("answer", "unknown_piece", {"prefix": ["猫 坐"], "stream": True}),
        ("answer", "bad_request", {"stream": "yes"}),
        ("rank", "bad_request", {"target": 5}),
    ],
)
def test_bad_fields_of_a_view_are_rejected(server: SmallServer, path: str, code: str, fields: dict[str, Any]) -> None:
    server.post_error(path, 400, code, text=TEXT, **fields)


def test_a_prefix_above_the_limit_is_rejected(server: SmallServer) -> None:
    server.post_error("steps", 413, "too_long", text=TEXT, prefix=["猫"] * 300)
    server.post_error("answer", 413, "too_long", text=TEXT, prefix=["猫"] * 3, decoder={"max_length": 2})


def test_a_too_long_text_is_rejected_with_shorter_choices(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(max_inspected_tokens=5))
    error = server.post_error("trace", 413, "too_long", text="the cat sat. a dog ran home.")
    assert error["choices"] == ["first 4 tokens"]
    assert error["texts"] == ["the cat sat."]
    error = server.post_error("trace", 413, "too_long", text="the cat sat. a dog ran.")
    assert (error["choices"], error["choices_zh"]) == (["first 4 tokens", "by sentence"], ["前 4 个词元", "逐句"])
    assert error["texts"] == ["the cat sat.", ["the cat sat.", "a dog ran."]]
    for text in ("the cat sat.", "a dog ran."):
        assert server.post("trace", text=text)["source"]["pieces"][-1] == "</s>"
    error = server.post_error("trace", 413, "too_long", text="cat", target="猫 " * 9)
    assert error["message"].startswith("the target has")
    assert (error["side"], "choices" in error) == ("target", False)
    assert error["message_zh"].startswith("译文有")


def test_learned_positions_limit_the_length() -> None:
    server = SmallServer(ModelSpec("short", random_model(positions="learned", max_length=6)))
    assert server.post_error("trace", 413, "too_long", text="cat " * 5 + "cat")["texts"] == ["cat cat cat cat cat"]
    server.post_error("trace", 413, "too_long", text="cat", target="猫 " * 6)
    assert server.post("trace", text="cat cat cat cat cat")["source"]["pieces"][-1] == "</s>"


def test_hostile_tokens_are_plain_text() -> None:
    server = SmallServer(ModelSpec("<b>", random_model(hostile=True)))
    assert server.get("models")["models"][0]["name"] == "<b>"
    for text in HOSTILE:
        answer = server.post("trace", text=text, target=text)
        assert answer["text"] == text
        assert answer["source"]["pieces"][-1] == "</s>"
        pieces = server.post("trace", text=text, target=text)["target"]["predicted"]
        assert "".join(pieces[:-1]).replace("␣", "") == text.replace(" ", "")
        error = server.post_error("trace", 404, "unknown_model", text=text, model=text)
        assert repr(text) in error["message"]


def test_control_tokens_in_a_text_are_plain_text(server: SmallServer) -> None:
    answer = server.post("trace", text="cat </s> <s>", target="</s>")
    assert answer["source"]["pieces"].count("</s>") == 1
    assert answer["target"]["predicted"].count("</s>") == 1
    assert answer["unknown"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"{API}/trace", 405, "bad_method"),
        ("POST", f"{API}/models", 405, "bad_method"),
        ("GET", f"{API}/nothing", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", f"{API}/training?model=nobody", 404, "unknown_model"),
        ("GET", f"{API}/training", 404, "no_training"),
    ],
)
def test_unknown_paths_and_methods_are_rejected(
    server: SmallServer, method: str, path: str, status: int, code: str
) -> None:
    check_error(server.client.request(method, path), status, code)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_other_content_types_are_rejected(server: SmallServer, content_type: str) -> None:
    """So a form of another site cannot send a request."""
    response = server.client.post(f"{API}/trace", content=b'{"text": "I"}', headers={"content-type": content_type})
    check_error(response, 400, "bad_request")
