"""X9: every answer has the same headers and an id, and no page of another server may ask unless it is named."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from small_gate import PATHS, SmallGate, written
from small_server import API, TEXT, Asking, error_of, parsed_events

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
OF_A_FILE = {"cache-control": "no-cache"}
OTHERS = {"content-type", "content-length", "x-request-id"}
ELSEWHERE = "https://elsewhere.example"


@pytest.fixture(scope="module")
def gate() -> SmallGate:
    return SmallGate()


@pytest.mark.parametrize("path", ["/nothing", f"{API}/models", "/livez", "/metrics", "/v2/nothing"])
def test_an_answer_has_exactly_these_headers(server: Asking, path: str) -> None:
    headers = dict(server.client.get(path).headers)
    assert headers.keys() == EXACT.keys() | OTHERS
    assert {name: headers[name] for name in EXACT} == EXACT


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_page_has_them_too(server: Asking, path: str) -> None:
    headers = dict(server.client.get(path, headers={"origin": ELSEWHERE}).headers)
    assert headers.keys() == EXACT.keys() | OTHERS | {"etag", "last-modified", "accept-ranges"}
    assert {name: headers[name] for name in EXACT} == {**EXACT, **OF_A_FILE}


def test_a_refusal_of_the_guard_has_them_too(server: Asking) -> None:
    answered = server.client.get(f"{API}/models", headers={"host": "evil.example"})
    error = error_of(answered, 400, "bad_host")
    assert {name: answered.headers[name] for name in EXACT} == EXACT
    assert answered.headers["x-request-id"] == error["request_id"]


@pytest.mark.parametrize("given", ["abc", "0af7651916cd43dd8448eb211c80319c", "a.b-c_D", "x" * 64])
def test_an_id_that_can_be_written_down_is_kept(gate: SmallGate, given: str) -> None:
    answered = gate.post("ours", {"x-request-id": given}, refuse="busy")
    assert answered.headers["x-request-id"] == given
    assert answered.json()["error"]["request_id"] == given


@pytest.mark.parametrize("given", [b"", b"x" * 65, b"a b", b"a\tb", b"a=1", b"\xff", b'{"a":1}', "é".encode(), b"a,b"])
def test_any_other_is_replaced(gate: SmallGate, given: bytes) -> None:
    with written() as lines:
        answered = gate.client.post(PATHS["ours"], json={}, headers={b"x-request-id": given})  # type: ignore[dict-item]
    made = answered.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert f"request_id={made}" in lines.getvalue()


def test_every_request_has_an_id_of_its_own(gate: SmallGate) -> None:
    made = [gate.post(shape).headers["x-request-id"] for shape in PATHS for _ in range(4)]
    assert len(set(made)) == len(made)
    twice = [("x-request-id", "a"), ("x-request-id", "b")]
    assert gate.client.post(PATHS["ours"], json={}, headers=twice).headers["x-request-id"] not in "ab"  # type: ignore[arg-type]


def test_pages_of_others_are_not_let_in_unless_named(gate: SmallGate) -> None:
    asks = {"origin": ELSEWHERE, "access-control-request-method": "POST"}
    for answered in (gate.post("ours", asks), gate.client.options(PATHS["ours"], headers=asks)):
        assert not [name for name in answered.headers if name.startswith("access-control")]
    assert gate.client.options(PATHS["ours"], headers=asks).status_code == 405


@pytest.mark.parametrize("origins", [(ELSEWHERE,), ("*",), ("https://third.example", ELSEWHERE)])
def test_a_page_that_is_named_may_ask_without_credentials(origins: tuple[str, ...]) -> None:
    gate = SmallGate(cors_origins=origins)
    origin = "*" if origins == ("*",) else ELSEWHERE
    answered = gate.post("openai", {"origin": ELSEWHERE}, refuse="busy")
    assert answered.status_code == 429
    assert answered.headers["access-control-allow-origin"] == origin
    assert answered.headers["access-control-expose-headers"] == "X-Request-ID, Retry-After"
    assert ("vary" in answered.headers) == (origin != "*")
    asked = {"origin": ELSEWHERE, "access-control-request-method": "POST", "access-control-request-headers": "x"}
    first = gate.client.options(PATHS["openai"], headers=asked)
    assert (first.status_code, first.content) == (204, b"")
    assert first.headers["access-control-allow-origin"] == origin
    assert "Authorization" in first.headers["access-control-allow-headers"]
    assert first.headers["access-control-allow-methods"] == "GET, HEAD, POST"
    for each in (answered, first):
        assert "access-control-allow-credentials" not in each.headers


@pytest.mark.parametrize("origin", ["https://elsewhere.example.evil", "http://elsewhere.example", "null", ""])
def test_another_page_than_the_one_that_is_named_may_not(origin: str) -> None:
    gate = SmallGate(cors_origins=(ELSEWHERE,))
    asks = {"origin": origin, "access-control-request-method": "POST"}
    for answered in (gate.post("ours", asks), gate.client.options(PATHS["ours"], headers=asks)):
        assert not [name for name in answered.headers if name.startswith("access-control")]
        assert answered.headers["vary"] == "Origin"


def test_trouble_in_the_midst_of_a_stream_has_the_id_too(
    small_model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Asking(ModelSpec("small", small_model))

    async def stream(*arguments: Any, **named: Any) -> AsyncIterator[str]:
        yield "I"
        raise ApiError("too_late")

    monkeypatch.setattr(server.app.gateway.get_model(None).worker, "stream", stream)
    answered = server.client.post(
        f"{API}/generate", json={"texts": [TEXT], "stream": True}, headers={"x-request-id": "mine"}
    )
    name, content = list(parsed_events(answered.text))[-1]
    assert (name, content["error"]["code"], content["error"]["request_id"]) == ("error", "too_late", "mine")
