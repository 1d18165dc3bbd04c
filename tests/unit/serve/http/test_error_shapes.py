"""An error has the shape, the status and the headers of the API that was asked, wherever it was raised."""

from typing import Any

import pytest
from error_codes import fragment, message
from small_gate import PATHS, SmallGate

from attendo.serve.http import errors
from attendo.serve.http.errors import ApiError, ApiName, api_for_path, build_error_response


@pytest.fixture(scope="module")
def gate() -> SmallGate:
    return SmallGate()


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v2/document/abc/result", "deepl"),
        ("/v1/models", "openai"),
        ("/hf/summarization", "huggingface"),
        ("/translate", "libretranslate"),
        ("/frontend/settings", "libretranslate"),
        ("/download_file/x.txt", "libretranslate"),
        ("/translated", "ours"),
        ("/v2", "ours"),
        ("/v10/models", "ours"),
        ("/api/v1/models", "ours"),
        ("/", "huggingface"),
        ("/livez", "ours"),
    ],
)
def test_a_path_belongs_to_an_api(path: str, shape: ApiName) -> None:
    assert api_for_path(path) == shape


def message_of(shape: ApiName, content: dict[str, Any]) -> str:
    """The message, from the only place where it may stand."""
    found: str
    if shape == "deepl":
        assert content.keys() == {"message", "detail"}
        found = content["message"]
    elif shape == "openai":
        assert content.keys() == {"error"}
        assert content["error"].keys() == {"message", "type", "param", "code"}
        found = content["error"]["message"]
    elif shape == "ours":
        assert content["error"].keys() >= {"code", "message", "message_zh", "request_id"}
        found = content["error"]["message"]
    else:
        assert content.keys() == {"error"}
        found = content["error"]
    return found


@pytest.mark.parametrize("shape", PATHS)
def test_a_refusal_has_the_shape_of_its_api(gate: SmallGate, shape: ApiName) -> None:
    answered = gate.post(shape, refuse="unknown_model")
    assert answered.status_code == 404
    assert message_of(shape, answered.json()) == message("unknown_model", name="nobody", known="small")
    if shape == "openai":
        error = answered.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "text", "model_not_found")


@pytest.mark.parametrize("shape", PATHS)
def test_who_is_busy_says_when_to_come_back(gate: SmallGate, shape: ApiName) -> None:
    busy, ending = gate.post(shape, refuse="busy"), gate.post(shape, refuse="draining")
    assert (busy.status_code, ending.status_code) == (429, 503)
    assert busy.headers["retry-after"] == "1"
    assert ending.headers["retry-after"] == "5"
    assert "retry-after" not in gate.post(shape, refuse="unknown_model").headers
    message = message_of(shape, busy.json())
    assert message.startswith("Slowdown: ") == (shape == "libretranslate")
    if shape == "openai":
        assert (busy.json()["error"]["type"], ending.json()["error"]["type"]) == ("rate_limit_error", "server_error")


@pytest.mark.parametrize("shape", PATHS)
def test_what_does_not_fit_is_a_400_that_names_it(gate: SmallGate, shape: ApiName) -> None:
    answered = gate.client.post(PATHS[shape], json={"text": 5})
    assert answered.status_code == 400
    assert message_of(shape, answered.json()) == message("field_string_type", name="text")
    if shape == "openai":
        assert answered.json()["error"]["param"] == "text"


@pytest.mark.parametrize("shape", PATHS)
def test_trouble_of_ours_is_told_without_its_words(gate: SmallGate, shape: ApiName) -> None:
    answered = gate.post(shape, fail="secret words")
    assert answered.status_code == 500
    assert message_of(shape, answered.json()).startswith(fragment("failed"))
    assert "secret" not in answered.text


@pytest.mark.parametrize("shape", PATHS)
@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (431, {"headers": {"x": "y" * 17_000}}),
        (413, {"content": b"x" * 1_100_000}),
        (415, {"content": b"x", "headers": {"content-encoding": "gzip"}}),
        (400, {"content": b"x", "headers": {"host": "evil.example"}}),
        (400, {"content": b"x", "headers": {"content-length": "1", "transfer-encoding": "chunked"}}),
    ],
)
def test_what_the_guard_refuses_has_it_too(gate: SmallGate, shape: ApiName, status: int, sent: dict[str, Any]) -> None:
    answered = gate.client.post(PATHS[shape], **sent)
    assert answered.status_code == status
    assert message_of(shape, answered.json())
    assert answered.headers["connection"] == "close"


def test_a_method_that_is_not_taken_is_told_which_is(gate: SmallGate) -> None:
    answered = gate.client.get(PATHS["deepl"])
    assert answered.status_code == 405
    assert answered.headers["allow"] == "POST"
    assert answered.json() == {
        "message": message("bad_method", path="/v2/translate", method="GET"),
        "detail": "bad_method",
    }


def test_names_that_are_too_long_are_not_told_back(gate: SmallGate, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def nearest(name: str, known: list[str]) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(errors, "suggest_name", nearest)
    answered = gate.client.post(PATHS["ours"], json={"x" * 500_000: 1})
    assert answered.json()["error"]["param"] == "x" * 100
    assert len(answered.content) < 1_000
    assert compared == ["x" * 100]
    assert len(gate.client.get("/" + "x" * 9_000).content) < 1_000


def test_a_refusal_can_be_rendered_by_itself() -> None:
    answered = build_error_response(ApiError("bad_key"), "/v2/usage")
    assert (answered.status_code, answered.body.startswith(b'{"message":')) == (403, True)
    assert build_error_response(ApiError("bad_key"), "/v1/models").headers["www-authenticate"] == "Bearer"
