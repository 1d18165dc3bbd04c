"""X9: every response has the same headers and an id. Pages of other origins need to be allowed by name."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from guarded_app import PATHS, GuardedApp, capture_log
from small_server import API, TEXT, SmallServer, check_error, parse_events

from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text_model import TextModel

EXACT = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
FILE_HEADERS = {"cache-control": "no-cache"}
OTHER_NAMES = {"content-type", "content-length", "x-request-id"}
OTHER_ORIGIN = "https://elsewhere.example"


@pytest.fixture(scope="module")
def app() -> GuardedApp:
    return GuardedApp()


@pytest.mark.parametrize("path", ["/nothing", f"{API}/models", "/livez", "/metrics", "/v2/nothing"])
def test_responses_have_exactly_these_headers(server: SmallServer, path: str) -> None:
    headers = dict(server.client.get(path).headers)
    assert headers.keys() == EXACT.keys() | OTHER_NAMES
    assert {name: headers[name] for name in EXACT} == EXACT


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_page_files_have_the_headers(server: SmallServer, path: str) -> None:
    headers = dict(server.client.get(path, headers={"origin": OTHER_ORIGIN}).headers)
    assert headers.keys() == EXACT.keys() | OTHER_NAMES | {"etag", "last-modified", "accept-ranges"}
    assert {name: headers[name] for name in EXACT} == {**EXACT, **FILE_HEADERS}


def test_guard_errors_have_the_headers(server: SmallServer) -> None:
    response = server.client.get(f"{API}/models", headers={"host": "evil.example"})
    error = check_error(response, 400, "bad_host")
    assert {name: response.headers[name] for name in EXACT} == EXACT
    assert response.headers["x-request-id"] == error["request_id"]


@pytest.mark.parametrize("given", ["abc", "0af7651916cd43dd8448eb211c80319c", "a.b-c_D", "x" * 64])
def test_a_valid_request_id_is_kept(app: GuardedApp, given: str) -> None:
    response = app.post("ours", {"x-request-id": given}, refuse="busy")
    assert response.headers["x-request-id"] == given
    assert response.json()["error"]["request_id"] == given


@pytest.mark.parametrize("given", [b"", b"x" * 65, b"a b", b"a\tb", b"a=1", b"\xff", b'{"a":1}', "é".encode(), b"a,b"])
def test_an_invalid_request_id_is_replaced(app: GuardedApp, given: bytes) -> None:
    with capture_log() as lines:
        response = app.client.post(PATHS["ours"], json={}, headers={b"x-request-id": given})  # type: ignore[dict-item]
    made = response.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert f"request_id={made}" in lines.getvalue()


def test_request_ids_are_unique(app: GuardedApp) -> None:
    made = [app.post(api).headers["x-request-id"] for api in PATHS for _ in range(4)]
    assert len(set(made)) == len(made)
    twice = [("x-request-id", "a"), ("x-request-id", "b")]
    assert app.client.post(PATHS["ours"], json={}, headers=twice).headers["x-request-id"] not in "ab"  # type: ignore[arg-type]


def test_other_origins_get_no_cors_headers(app: GuardedApp) -> None:
    headers = {"origin": OTHER_ORIGIN, "access-control-request-method": "POST"}
    for response in (app.post("ours", headers), app.client.options(PATHS["ours"], headers=headers)):
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert app.client.options(PATHS["ours"], headers=headers).status_code == 405


@pytest.mark.parametrize("origins", [(OTHER_ORIGIN,), ("*",), ("https://third.example", OTHER_ORIGIN)])
def test_allowed_origins_get_cors_without_credentials(origins: tuple[str, ...]) -> None:
    app = GuardedApp(cors_origins=origins)
    origin = "*" if origins == ("*",) else OTHER_ORIGIN
    response = app.post("openai", {"origin": OTHER_ORIGIN}, refuse="busy")
    assert response.status_code == 429
    assert response.headers["access-control-allow-origin"] == origin
    assert response.headers["access-control-expose-headers"] == "X-Request-ID, Retry-After"
    assert ("vary" in response.headers) == (origin != "*")
    headers = {"origin": OTHER_ORIGIN, "access-control-request-method": "POST", "access-control-request-headers": "x"}
    preflight = app.client.options(PATHS["openai"], headers=headers)
    assert (preflight.status_code, preflight.content) == (204, b"")
    assert preflight.headers["access-control-allow-origin"] == origin
    assert "Authorization" in preflight.headers["access-control-allow-headers"]
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    for each in (response, preflight):
        assert "access-control-allow-credentials" not in each.headers


@pytest.mark.parametrize("origin", ["https://elsewhere.example.evil", "http://elsewhere.example", "null", ""])
def test_origins_not_allowed_get_no_cors_headers(origin: str) -> None:
    app = GuardedApp(cors_origins=(OTHER_ORIGIN,))
    headers = {"origin": origin, "access-control-request-method": "POST"}
    for response in (app.post("ours", headers), app.client.options(PATHS["ours"], headers=headers)):
        assert not [name for name in response.headers if name.startswith("access-control")]
        assert response.headers["vary"] == "Origin"


def test_a_stream_error_has_the_request_id(small_model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SmallServer(ModelSpec("small", small_model))

    async def stream(*arguments: Any, **named: Any) -> AsyncIterator[str]:
        yield "I"
        raise ApiError("too_late")

    monkeypatch.setattr(server.app.gateway.get_model(None).worker, "stream", stream)
    response = server.client.post(
        f"{API}/generate", json={"texts": [TEXT], "stream": True}, headers={"x-request-id": "mine"}
    )
    name, content = list(parse_events(response.text))[-1]
    assert (name, content["error"]["code"], content["error"]["request_id"]) == ("error", "too_late", "mine")
