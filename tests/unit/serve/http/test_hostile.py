"""S3: any input gets a response or a closed connection, never a 5xx. Memory does not grow."""

import asyncio
import gc
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import four_models
import pytest
from fastapi.routing import iter_route_contexts
from hostile_requests import BODIES, BYTES, FORMS, WORDS, is_object
from raw_http import MAX_SECONDS, exchange, request, serve_app
from small_server import API
from tiny import PATIENCE

from attendo.serve.app import Application, create_app
from attendo.serve.http.metrics import resident_bytes
from attendo.serve.settings import ServeSettings

API_PATHS = ("/translate", "/v2/translate", "/v1/chat/completions", "/hf/translation", f"{API}/generate")
HEAVY = ("deep lists", "deep objects", "a key without end", "many keys", "a million texts", "too large", "too long")
LARGE = ("gzip bomb", "chunks for ever", "a header for ever", "a huge length")
CLOSED = {"mail", "noise", "nothing at all"}  # closed without a response: not a complete request
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
# Short timeouts and little computation: these tests cover reading requests and reporting errors.
QUICK = {"body_timeout": 0.5, "header_timeout": 0.5, "max_source_tokens": 64, "max_output_tokens": 4}
NUM_CLIENTS = 8


@pytest.fixture(scope="module")
def app() -> Application:
    return create_app(four_models.make_specs(), ServeSettings(**QUICK))


@pytest.fixture(scope="module")
def port(app: Application) -> Iterator[int]:
    asyncio.run(app.gateway.warm_up())
    with serve_app(app) as found:
        yield found


@pytest.fixture(scope="module")
def routes(app: Application) -> list[tuple[str, str]]:
    """Every method and path of the application."""
    routes = [
        (method, str(each.path).replace("{", "").replace(":path}", "").replace("}", ""))
        for each in iter_route_contexts(app.app.routes)  # type: ignore[attr-defined]
        for method in sorted(each.methods or ())
    ]
    assert len(routes) > 20
    assert {path for _, path in routes} >= {*API_PATHS, "/metrics", "/v1/models", "/detect"}
    return routes


def test_the_corpus_has_150_cases() -> None:
    assert len(BODIES) + len(FORMS) + len(BYTES) >= 150


def test_every_hostile_body_is_handled_by_one_api(port: int) -> None:
    """The APIs take turns."""
    paths = dict(zip([*BODIES, *FORMS], cycle(API_PATHS), strict=False))
    known = {path: _known_fields(port, path) for path in API_PATHS}
    payloads = {name: request(paths[name], _keep_known_fields(name, known[paths[name]])) for name in BODIES}
    payloads |= {
        name: request(paths[name], body, content_type=content_type) for name, (content_type, body) in FORMS.items()
    }
    statuses = _check_responses(port, payloads)
    assert len(statuses) >= 80
    assert {200, 400, 413} <= {*statuses.values()}


@pytest.mark.slow
@pytest.mark.parametrize("path", API_PATHS)
def test_every_hostile_body_is_handled_by_every_api(port: int, path: str) -> None:
    """A body with only the fields that the endpoint knows is processed further. Bodies without such fields stay."""
    known = _known_fields(port, path)
    payloads = {name: request(path, _keep_known_fields(name, known)) for name in BODIES}
    payloads |= {name: request(path, body, content_type=content_type) for name, (content_type, body) in FORMS.items()}
    statuses = _check_responses(port, payloads, MAX_SECONDS)
    assert len(statuses) >= 80
    assert {200, 400, 413} <= {*statuses.values()}


@pytest.mark.parametrize(
    "path", [API_PATHS[0], *(pytest.param(path, marks=pytest.mark.slow) for path in API_PATHS[1:])]
)
def test_hostile_bytes_get_a_response_or_are_closed(port: int, path: str) -> None:
    statuses = _check_responses(port, {name: build(path) for name, build in BYTES.items()})
    assert {400, 404, 405, 408, 413, 415, 431} <= {*statuses.values()}
    assert {name for name, status in statuses.items() if status is None} == CLOSED


def test_every_route_handles_some_hostile_bodies(port: int, routes: list[tuple[str, str]]) -> None:
    """Two bodies per route, in rotation."""
    few = cycle(FEW)
    payloads = {
        f"{method} {path} {name}": request(path, BODIES[name], method=method)
        for method, path in routes
        for name in islice(few, 2)
    }
    assert len(_check_responses(port, payloads)) > 50


@pytest.mark.slow
def test_every_route_handles_all_hostile_input(port: int, routes: list[tuple[str, str]]) -> None:
    for method, path in routes:
        _check_responses(port, {name: request(path, body, method) for name, body in BODIES.items()}, MAX_SECONDS)
        _check_responses(
            port,
            {
                name: request(path, body, method, content_type=content_type)
                for name, (content_type, body) in FORMS.items()
            },
            MAX_SECONDS,
        )
        assert len(_check_responses(port, {name: build(path) for name, build in BYTES.items()}, MAX_SECONDS)) == len(
            BYTES
        )


@pytest.mark.slow
@pytest.mark.parametrize("bodies", [HEAVY, pytest.param((*BODIES,), marks=pytest.mark.slow)])
def test_memory_does_not_grow(port: int, bodies: tuple[str, ...]) -> None:
    def send_all() -> None:
        for path in API_PATHS[:1]:
            _check_responses(port, {name: request(path, BODIES[name]) for name in bodies})
            _check_responses(port, {name: BYTES[name](path) for name in LARGE})
        gc.collect()

    send_all()
    before = resident_bytes()
    send_all()
    assert resident_bytes() - before <= 32 * 1024 * 1024


def test_malformed_http_gets_a_json_error(port: int) -> None:
    broken = exchange(port, BYTES["HTTP/0.9"]("/"))
    assert (broken.status, broken.head["content-type"]) == (400, "application/json")
    assert json.loads(broken.body)["error"]["code"] == "bad_http"
    large = exchange(port, BYTES["a header for ever"]("/v2/translate"))
    assert large.status == 431
    assert large.head["x-request-id"] == json.loads(large.body)["error"]["request_id"]
    assert large.head["content-security-policy"].startswith("default-src 'none'")


def test_two_body_lengths_close_the_connection(port: int) -> None:
    """Bytes after a request with an ambiguous end are not read as another request."""
    hidden = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    payload = request("/translate", b"0\r\n\r\n" + hidden, headers=["Transfer-Encoding: chunked"])
    response = exchange(port, payload.replace(b"Connection: close\r\n", b"", 1))
    assert response.status == 400
    assert response.data.count(b"HTTP/1.1 ") == 1
    assert b"both Content-Length and Transfer-Encoding" in response.body


def test_a_too_large_body_is_read_and_gets_413(port: int) -> None:
    for body in (BODIES["too large"], BODIES["too large"] * 2):
        response = exchange(port, request("/v2/translate", body))
        assert response.status == 413
        assert json.loads(response.body)["detail"] == "body_too_large"


def _check_responses(port: int, payloads: Mapping[str, Any], seconds: float = PATIENCE) -> dict[str, int | None]:
    """The status of every payload. None is a 5xx, and the server still works afterwards."""
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        found = clients.map(lambda each: exchange(port, each, seconds).status, payloads.values())
        statuses = dict(zip(payloads, found, strict=True))
    assert {name: status for name, status in statuses.items() if status is not None and not 200 <= status < 500} == {}
    check = exchange(port, request(f"{API}/generate", json.dumps({"texts": [WORDS]}).encode()))
    while check.status == 408:  # a busy machine took more than 0.5 s to send it
        check = exchange(port, request(f"{API}/generate", json.dumps({"texts": [WORDS]}).encode()))
    assert check.status == 200
    assert json.loads(check.body)["results"][0]["text"]
    return statuses


def _keep_known_fields(name: str, known: set[str]) -> bytes:
    if not is_object(BODIES[name]):
        return BODIES[name]
    body = json.loads(BODIES[name])
    fields = {key: value for key, value in body.items() if key in known}
    return json.dumps(fields).encode() if fields and fields != body else BODIES[name]


def _known_fields(port: int, path: str) -> set[str]:
    """The field names of an endpoint in the OpenAPI description."""
    description = json.loads(exchange(port, request(f"{API}/openapi.json", method="GET")).body)
    content = description["paths"][path]["post"].get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return set(schema.get("properties", {}))
