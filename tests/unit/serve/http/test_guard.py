"""Every request passes the guard, and every answer carries its headers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from all_routes import routes_of
from small_gate import written
from small_server import API, TEXT, Asking, error_of

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import GENERATION_ROUTES, RequestGuard, host_name
from attendo.serve.settings import ServeSettings

Message = dict[str, Any]
Headers = list[tuple[bytes, bytes]]
Receive = Callable[[], Any]
OURS: Headers = [(b"host", b"localhost")]


@pytest.mark.parametrize("host", ["localhost", "localhost:8800", "127.0.0.1:1", "[::1]:8800", "LOCALHOST"])
def test_names_of_this_machine_are_known(server: Asking, host: str) -> None:
    assert server.client.get(f"{API}/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"])
def test_other_names_are_refused(server: Asking, host: str) -> None:
    error_of(server.client.get(f"{API}/models", headers={"host": host}), 400, "bad_host")


def test_a_host_can_be_added() -> None:
    settings = ServeSettings(allowed_hosts=("192.0.2.7",))
    assert _status(guarded(_empty, settings), [(b"host", b"192.0.2.7:80")]) == 204
    assert _status(guarded(_empty, settings), [(b"host", b"localhost")]) == 400
    assert _status(guarded(_empty, settings), [(b"host", b"192.0.2.7"), (b"host", b"192.0.2.7")]) == 400
    assert _status(guarded(_empty, settings), []) == 400
    assert host_name("[FE80::1]:80") == "fe80::1"


@pytest.mark.parametrize("host", ["10.1.2.3:8800", "[fd00::7]:8800", "evil.example", ""])
def test_probes_are_answered_by_whatever_name_they_ask(server: Asking, host: str) -> None:
    for path, told in (("/livez", {"status"}), ("/health", {"status"}), ("/readyz", {"ready", "reason"})):
        answered = server.client.get(path, headers={"host": host})
        assert answered.status_code != 400
        assert answered.json().keys() == told


@pytest.mark.parametrize("path", ["/metrics", "/", "/livez/", "/livez/x", "//livez", "/LIVEZ", "/readyz/../metrics"])
def test_nothing_else_is(path: str) -> None:
    sent: list[Message] = []
    asyncio.run(_asked(guarded(_never), [(b"host", b"10.1.2.3:8800")], sent, path=path))
    assert sent[0]["status"] == 400


def test_a_probe_has_the_other_limits() -> None:
    for header, status in (((b"x", b"y" * 17_000), 431), ((b"content-encoding", b"gzip"), 415)):
        sent: list[Message] = []
        asyncio.run(_asked(guarded(_never), [(b"host", b"10.1.2.3"), header], sent, path="/readyz"))
        assert sent[0]["status"] == status


def test_bodies_and_headers_have_an_end(server: Asking) -> None:
    large = {"text": "x" * (1024 * 1024)}
    error_of(server.client.post(f"{API}/trace", json=large), 413, "body_too_large")

    def dribbled() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    error_of(server.client.post(f"{API}/trace", content=dribbled()), 413, "body_too_large")
    error_of(server.client.get("/livez", headers={"x": "y" * 17_000}), 431, "headers_too_large")


@pytest.mark.parametrize("length", ["-5", "x", "9" * 5000])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    sent = [(b"host", b"localhost"), (b"content-length", length.encode())]
    assert _status(guarded(_never, ServeSettings()), sent) in (413, 431)


def test_compressed_bodies_are_not_read(server: Asking) -> None:
    answered = server.client.post(f"{API}/trace", content=b"x", headers={"content-encoding": "gzip"})
    error_of(answered, 415, "bad_encoding")


def test_a_body_must_arrive() -> None:
    async def nothing() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    guard = guarded(_never, ServeSettings(body_timeout=0.05))
    assert _status(guard, [(b"host", b"localhost")], nothing) == 408


def test_a_client_that_leaves_stops_the_work() -> None:
    stopped = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"all"
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    messages = [{"type": "http.request", "body": b"all"}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    assert _status(guarded(endless, ServeSettings()), [(b"host", b"localhost")], receive) is None
    assert stopped.is_set()


def test_a_client_that_left_before_its_body_came_is_not_answered() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    assert _status(guarded(_never, ServeSettings()), [(b"host", b"localhost")], receive) is None


def test_trouble_behind_the_guard_is_answered_once() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("secret words")

    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("secret words")

    with written() as lines:
        assert [message.get("status") for message in _sent(guarded(fails), OURS)] == [500, None]
        assert [message.get("status") for message in _sent(guarded(breaks_off), OURS)] == [200]
    assert lines.getvalue().count("a request failed: ValueError at test_guard.py") == 2
    assert "secret" not in lines.getvalue()


def test_who_is_waiting_when_the_server_ends_is_told() -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(60)

    sent: list[Message] = []

    async def ending() -> None:
        asking = asyncio.ensure_future(_asked(guarded(endless), OURS, sent))
        await asyncio.sleep(0.02)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ending())
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]


def test_who_comes_when_the_server_ends_is_told_too() -> None:
    guard = guarded(_never)
    guard.gateway.draining = True
    assert _status(guard, OURS) == 503


@pytest.mark.parametrize("more", [True, False])
def test_a_body_that_is_refused_is_read_only_as_far_as_it_comes(more: bool) -> None:
    """Nobody waits for what will not come."""
    messages = [{"type": "http.request", "body": b"x" * 11, "more_body": more}]
    messages += [{"type": "http.request", "body": b"x", "more_body": False}] * more

    async def receive() -> Message:
        assert messages, "it was asked for more than there is"
        return messages.pop(0)

    assert _status(guarded(_never, ServeSettings(body_bytes=10)), OURS, receive) == 413
    assert not messages


def test_who_waits_to_be_told_is_told_at_once() -> None:
    async def receive() -> Message:
        raise AssertionError("this would make the client send its body")

    asks = [*OURS, (b"expect", b"100-continue"), (b"content-length", b"99999999")]
    assert _status(guarded(_never), asks, receive) == 413


@pytest.mark.parametrize("path", ["/v2/document", "/translate_file", "/v2/translate"])
def test_only_documents_may_be_as_large_as_documents(path: str) -> None:
    guard = guarded(_empty, ServeSettings(body_bytes=10, documents_bytes=100))
    statuses = []
    for size in (b"11", b"101"):
        sent: list[Message] = []
        asyncio.run(_asked(guard, [*OURS, (b"content-length", size)], sent, path=path))
        statuses.append(sent[0]["status"])
    assert statuses == ([413, 413] if path == "/v2/translate" else [204, 413])


def test_files_of_the_page_are_served(server: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "a.js").write_text("export const x = 1;", "utf-8")
    (folder / "notes.txt").write_text("none of the page", "utf-8")
    (tmp_path / "secret.js").write_text("secret", "utf-8")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    answered = catalogue_routes._file_response(folder, "a.js")
    assert answered.media_type == "text/javascript; charset=utf-8"
    for path in ("", "nothing.js", "notes.txt", "link.js", "../secret.js", "/etc/passwd", "a.js\0", "x" * 5000):
        with pytest.raises(Exception, match="no_page"):
            catalogue_routes._file_response(folder, path)


@pytest.mark.parametrize(
    "path", ["..%2f..%2ferrors.py", "%2e%2e/%2e%2e/errors.py", "..%5cerrors.py", "a%00.js", "/etc/hosts"]
)
def test_nothing_beside_the_page_is_served(server: Asking, path: str) -> None:
    answered = server.client.get(f"/page/{path}")
    assert answered.status_code == 404
    assert "AttendoError" not in answered.text


def test_an_answer_has_no_number_that_json_has_not(server: Asking) -> None:
    answered = server.raw("mask", text=TEXT)
    assert answered.headers["content-type"] == "application/json"
    assert "null" in answered.text
    assert "Infinity" not in answered.text


def guarded(app: Any, settings: ServeSettings | None = None) -> RequestGuard:
    """With as much of an office as a guard looks at."""
    office: Any = SimpleNamespace(
        settings=settings or ServeSettings(), metrics=ServerMetrics(), draining=False, is_full=False
    )
    return RequestGuard(app, office)


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the guard let it pass")


async def _empty(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _status(guard: RequestGuard, headers: Headers, receive: Receive | None = None) -> int | None:
    """What a request with these headers is answered with."""
    return next((message["status"] for message in _sent(guard, headers, receive) if "status" in message), None)


def _sent(guard: RequestGuard, headers: Headers, receive: Receive | None = None) -> list[Message]:
    sent: list[Message] = []
    asyncio.run(_asked(guard, headers, sent, receive))
    return sent


async def _asked(
    guard: RequestGuard, headers: Headers, sent: list[Message], receive: Receive | None = None, path: str = "/api/v1/x"
) -> None:
    """Without a body, by a client that stays, unless `receive` has it otherwise."""
    messages = [{"type": "http.request", "body": b""}]

    async def whole() -> Message:
        if not messages:
            await asyncio.sleep(60)
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    await guard(scope, receive or whole, send)


def test_S5_where_nobody_has_room_a_program_is_refused_before_its_request_is_looked_at() -> None:
    for path, passed in (("/translate", False), ("/v1/chat/completions", False), ("/api/v1/answer", True)):
        guard, sent = guarded(_empty), list[Message]()
        guard._route_templates = SimpleNamespace(match=lambda path: path)  # type: ignore[assignment]
        guard.gateway.is_full, guard.gateway.num_waiting = True, 7  # type: ignore[misc]
        asyncio.run(_asked(guard, OURS, sent, path=path))
        headers = dict(sent[0]["headers"])
        assert sent[0]["status"] == (204 if passed else 429), path
        assert passed or (headers[b"retry-after"] == b"1" and b"7 requests are waiting" in sent[1]["body"])
        assert b"connection" not in headers, "it can be used again"


def test_the_routes_that_are_refused_so_are_routes(server: Asking) -> None:
    assert {("POST", route) for route in GENERATION_ROUTES} <= set(routes_of(server.app))
