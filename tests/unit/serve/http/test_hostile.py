"""S3: whatever is sent, it is answered or the connection closed, never with a 5xx, and memory stays as it is."""

import asyncio
import gc
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import polyglot
import pytest
from fastapi.routing import iter_route_contexts
from hostile_requests import BODIES, BYTES, FORMS, WORDS, is_object
from raw_http import PROMISED, exchanged, request, served
from small_server import API
from tiny import PATIENCE

from attendo.serve.app import create_app
from attendo.serve.http.metrics import resident_bytes
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.settings import ServeSettings

OF_EACH_API = ("/translate", "/v2/translate", "/v1/chat/completions", "/hf/translation", f"{API}/generate")
HEAVY = ("deep lists", "deep objects", "a key without end", "many keys", "a million texts", "too large", "too long")
LARGE = ("gzip bomb", "chunks for ever", "a header for ever", "a huge length")
CLOSED = {"mail", "noise", "nothing at all"}  # without an answer: none of it is a whole request
FEW = (
    "nothing",
    "deep lists",
    "no UTF-8",
    "half of a pair",
    "a number",
    "too many texts",
    "many alternatives",
    "below nothing",
)
# Little time to send, and little to compute: what is looked at here is what comes before and after it.
QUICK = {"body_timeout": 0.5, "header_timeout": 0.5, "max_source_tokens": 64, "max_output_tokens": 4}
AT_ONCE = 8


@pytest.fixture(scope="module")
def app() -> RequestGuard:
    return create_app(polyglot.served(), ServeSettings(**QUICK))


@pytest.fixture(scope="module")
def port(app: RequestGuard) -> Iterator[int]:
    asyncio.run(app.gateway.warm_up())
    with served(app) as found:
        yield found


@pytest.fixture(scope="module")
def asking(app: RequestGuard) -> list[tuple[str, str]]:
    """Every method and path of the application."""
    found = [
        (method, str(each.path).replace("{", "").replace(":path}", "").replace("}", ""))
        for each in iter_route_contexts(app.app.routes)  # type: ignore[attr-defined]
        for method in sorted(each.methods or ())
    ]
    assert len(found) > 20
    assert {path for _, path in found} >= {*OF_EACH_API, "/metrics", "/v1/models", "/detect"}
    return found


def test_the_corpus_is_large_enough() -> None:
    assert len(BODIES) + len(FORMS) + len(BYTES) >= 150


def test_every_hostile_body_is_refused_or_answered_by_an_api(port: int) -> None:
    """In turn by each."""
    paths = dict(zip([*BODIES, *FORMS], cycle(OF_EACH_API), strict=False))
    known = {path: _fields(port, path) for path in OF_EACH_API}
    sent = {name: request(paths[name], _fitting(name, known[paths[name]])) for name in BODIES}
    sent |= {name: request(paths[name], body, kind=kind) for name, (kind, body) in FORMS.items()}
    statuses = _judged(port, sent)
    assert len(statuses) >= 80
    assert {200, 400, 413} <= {*statuses.values()}


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_EACH_API)
def test_every_hostile_body_is_refused_or_answered(port: int, path: str) -> None:
    """With nothing but fields that this endpoint knows, where there are such: so it comes further."""
    known = _fields(port, path)
    sent = {name: request(path, _fitting(name, known)) for name in BODIES}
    sent |= {name: request(path, body, kind=kind) for name, (kind, body) in FORMS.items()}
    statuses = _judged(port, sent, PROMISED)
    assert len(statuses) >= 80
    assert {200, 400, 413} <= {*statuses.values()}


@pytest.mark.parametrize(
    "path", [OF_EACH_API[0], *(pytest.param(path, marks=pytest.mark.slow) for path in OF_EACH_API[1:])]
)
def test_hostile_bytes_are_answered_or_the_connection_is_closed(port: int, path: str) -> None:
    statuses = _judged(port, {name: made(path) for name, made in BYTES.items()})
    assert {400, 404, 405, 408, 413, 415, 431} <= {*statuses.values()}
    assert {name for name, status in statuses.items() if status is None} == CLOSED


def test_every_route_stands_some_of_it(port: int, asking: list[tuple[str, str]]) -> None:
    """Two each, in turn."""
    few = cycle(FEW)
    sent = {
        f"{method} {path} {name}": request(path, BODIES[name], method=method)
        for method, path in asking
        for name in islice(few, 2)
    }
    assert len(_judged(port, sent)) > 50


@pytest.mark.slow
def test_every_route_stands_all_of_it(port: int, asking: list[tuple[str, str]]) -> None:
    for method, path in asking:
        _judged(port, {name: request(path, body, method) for name, body in BODIES.items()}, PROMISED)
        _judged(port, {name: request(path, body, method, kind=kind) for name, (kind, body) in FORMS.items()}, PROMISED)
        assert len(_judged(port, {name: made(path) for name, made in BYTES.items()}, PROMISED)) == len(BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("bodies", [HEAVY, pytest.param((*BODIES,), marks=pytest.mark.slow)])
def test_memory_does_not_grow(port: int, bodies: tuple[str, ...]) -> None:
    def all_once() -> None:
        for path in OF_EACH_API[:1]:
            _judged(port, {name: request(path, BODIES[name]) for name in bodies})
            _judged(port, {name: BYTES[name](path) for name in LARGE})
        gc.collect()

    all_once()
    before = resident_bytes()
    all_once()
    assert resident_bytes() - before <= 32 * 1024 * 1024


def test_what_is_refused_before_it_is_a_request_says_so(port: int) -> None:
    broken = exchanged(port, BYTES["HTTP/0.9"]("/"))
    assert (broken.status, broken.head["content-type"]) == (400, "application/json")
    assert json.loads(broken.body)["error"]["code"] == "bad_http"
    large = exchanged(port, BYTES["a header for ever"]("/v2/translate"))
    assert large.status == 431
    assert large.head["x-request-id"] == json.loads(large.body)["error"]["request_id"]
    assert large.head["content-security-policy"].startswith("default-src 'none'")


def test_two_lengths_end_the_connection(port: int) -> None:
    """Nothing behind a request whose end is doubtful is taken for another one."""
    hidden = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    sent = request("/translate", b"0\r\n\r\n" + hidden, headers=["Transfer-Encoding: chunked"])
    answered = exchanged(port, sent.replace(b"Connection: close\r\n", b"", 1))
    assert answered.status == 400
    assert answered.data.count(b"HTTP/1.1 ") == 1
    assert b"both Content-Length and Transfer-Encoding" in answered.body


def test_a_body_that_is_too_large_is_read_off_so_that_its_client_hears_why(port: int) -> None:
    for body in (BODIES["too large"], BODIES["too large"] * 2):
        answered = exchanged(port, request("/v2/translate", body))
        assert answered.status == 413
        assert json.loads(answered.body)["detail"] == "body_too_large"


def _judged(port: int, sent: Mapping[str, Any], seconds: float = PATIENCE) -> dict[str, int | None]:
    """The statuses of all, none of which is a 5xx; behind them the server answers as before."""
    with ThreadPoolExecutor(AT_ONCE) as clients:
        found = clients.map(lambda each: exchanged(port, each, seconds).status, sent.values())
        statuses = dict(zip(sent, found, strict=True))
    assert {name: status for name, status in statuses.items() if status is not None and not 200 <= status < 500} == {}
    well = exchanged(port, request(f"{API}/generate", json.dumps({"texts": [WORDS]}).encode()))
    while well.status == 408:  # a busy machine did not let us send it within half a second
        well = exchanged(port, request(f"{API}/generate", json.dumps({"texts": [WORDS]}).encode()))
    assert well.status == 200
    assert json.loads(well.body)["results"][0]["text"]
    return statuses


def _fitting(name: str, known: set[str]) -> bytes:
    if not is_object(BODIES[name]):
        return BODIES[name]
    whole = json.loads(BODIES[name])
    fields = {key: value for key, value in whole.items() if key in known}
    return json.dumps(fields).encode() if fields and fields != whole else BODIES[name]


def _fields(port: int, path: str) -> set[str]:
    """The names that an endpoint knows, by its own description."""
    file = json.loads(exchanged(port, request(f"{API}/openapi.json", method="GET")).body)
    content = file["paths"][path]["post"].get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = file["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return set(schema.get("properties", {}))
