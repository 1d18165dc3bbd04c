"""An error has the format, status and headers of the API that received the request."""

from typing import Any

import pytest
from error_codes import fragment, message
from guarded_app import PATHS, GuardedApp

from attendo.serve.http import errors
from attendo.serve.http.errors import ApiError, ApiName, api_for_path, render_error


@pytest.fixture(scope="module")
def app() -> GuardedApp:
    return GuardedApp()


@pytest.mark.parametrize(
    ("path", "api"),
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
def test_paths_map_to_apis(path: str, api: ApiName) -> None:
    assert api_for_path(path) == api


def error_message(api: ApiName, content: dict[str, Any]) -> str:
    """The message, after a check that the body has exactly the fields of the API."""
    found: str
    if api == "deepl":
        assert content.keys() == {"message", "detail"}
        found = content["message"]
    elif api == "openai":
        assert content.keys() == {"error"}
        assert content["error"].keys() == {"message", "type", "param", "code"}
        found = content["error"]["message"]
    elif api == "ours":
        assert content["error"].keys() >= {"code", "message", "message_zh", "request_id"}
        found = content["error"]["message"]
    else:
        assert content.keys() == {"error"}
        found = content["error"]
    return found


@pytest.mark.parametrize("api", PATHS)
def test_an_error_has_the_format_of_its_api(app: GuardedApp, api: ApiName) -> None:
    response = app.post(api, refuse="unknown_model")
    assert response.status_code == 404
    assert error_message(api, response.json()) == message("unknown_model", name="nobody", known="small")
    if api == "openai":
        error = response.json()["error"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "text", "model_not_found")


@pytest.mark.parametrize("api", PATHS)
def test_busy_errors_have_retry_after(app: GuardedApp, api: ApiName) -> None:
    busy, draining = app.post(api, refuse="busy"), app.post(api, refuse="draining")
    assert (busy.status_code, draining.status_code) == (429, 503)
    assert busy.headers["retry-after"] == "1"
    assert draining.headers["retry-after"] == "5"
    assert "retry-after" not in app.post(api, refuse="unknown_model").headers
    text = error_message(api, busy.json())
    assert text.startswith("Slowdown: ") == (api == "libretranslate")
    if api == "openai":
        assert (busy.json()["error"]["type"], draining.json()["error"]["type"]) == ("rate_limit_error", "server_error")


@pytest.mark.parametrize("api", PATHS)
def test_a_bad_field_is_a_400_that_names_it(app: GuardedApp, api: ApiName) -> None:
    response = app.client.post(PATHS[api], json={"text": 5})
    assert response.status_code == 400
    assert error_message(api, response.json()) == message("field_string_type", name="text")
    if api == "openai":
        assert response.json()["error"]["param"] == "text"


@pytest.mark.parametrize("api", PATHS)
def test_internal_errors_hide_their_message(app: GuardedApp, api: ApiName) -> None:
    response = app.post(api, fail="secret words")
    assert response.status_code == 500
    assert error_message(api, response.json()).startswith(fragment("failed"))
    assert "secret" not in response.text


@pytest.mark.parametrize("api", PATHS)
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
def test_errors_of_the_guard_have_the_format(app: GuardedApp, api: ApiName, status: int, sent: dict[str, Any]) -> None:
    response = app.client.post(PATHS[api], **sent)
    assert response.status_code == status
    assert error_message(api, response.json())
    assert response.headers["connection"] == "close"


def test_a_wrong_method_returns_the_allowed_one(app: GuardedApp) -> None:
    response = app.client.get(PATHS["deepl"])
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json() == {
        "message": message("bad_method", path="/v2/translate", method="GET"),
        "detail": "bad_method",
    }


def test_long_names_are_truncated_in_errors(app: GuardedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def record_name(name: str, known: list[str]) -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr(errors, "suggest_name", record_name)
    response = app.client.post(PATHS["ours"], json={"x" * 500_000: 1})
    assert response.json()["error"]["param"] == "x" * 100
    assert len(response.content) < 1_000
    assert compared == ["x" * 100]
    assert len(app.client.get("/" + "x" * 9_000).content) < 1_000


def test_an_error_response_can_be_built_alone() -> None:
    response = render_error(ApiError("bad_key"), "/v2/usage")
    assert (response.status_code, response.body.startswith(b'{"message":')) == (403, True)
    assert render_error(ApiError("bad_key"), "/v1/models").headers["www-authenticate"] == "Bearer"
