"""Every request passes `RequestGuard`: host names, sizes, time limits and disconnects."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from all_routes import list_routes
from guarded_app import capture_log
from small_server import API, TEXT, SmallServer, check_error

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import GENERATION_ROUTES, RequestGuard, host_name
from attendo.serve.settings import ServeSettings

Message = dict[str, Any]
Headers = list[tuple[bytes, bytes]]
Receive = Callable[[], Any]
LOCAL_HOST: Headers = [(b"host", b"localhost")]


@pytest.mark.parametrize("host", ["localhost", "localhost:8800", "127.0.0.1:1", "[::1]:8800", "LOCALHOST"])
def test_local_host_names_are_allowed(server: SmallServer, host: str) -> None:
    assert server.client.get(f"{API}/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"])
def test_other_host_names_are_rejected(server: SmallServer, host: str) -> None:
    check_error(server.client.get(f"{API}/models", headers={"host": host}), 400, "bad_host")


def test_a_host_can_be_added() -> None:
    settings = ServeSettings(allowed_hosts=("192.0.2.7",))
    assert _status(make_guard(_empty, settings), [(b"host", b"192.0.2.7:80")]) == 204
    assert _status(make_guard(_empty, settings), [(b"host", b"localhost")]) == 400
    assert _status(make_guard(_empty, settings), [(b"host", b"192.0.2.7"), (b"host", b"192.0.2.7")]) == 400
    assert _status(make_guard(_empty, settings), []) == 400
    assert host_name("[FE80::1]:80") == "fe80::1"


@pytest.mark.parametrize("host", ["10.1.2.3:8800", "[fd00::7]:8800", "evil.example", ""])
def test_probes_accept_any_host_name(server: SmallServer, host: str) -> None:
    for path, keys in (("/livez", {"status"}), ("/health", {"status"}), ("/readyz", {"ready", "reason"})):
        response = server.client.get(path, headers={"host": host})
        assert response.status_code != 400
        assert response.json().keys() == keys


@pytest.mark.parametrize("path", ["/metrics", "/", "/livez/", "/livez/x", "//livez", "/LIVEZ", "/readyz/../metrics"])
def test_other_paths_reject_unknown_hosts(path: str) -> None:
    sent: list[Message] = []
    asyncio.run(_send_request(make_guard(_never), [(b"host", b"10.1.2.3:8800")], sent, path=path))
    assert sent[0]["status"] == 400


def test_probes_obey_the_other_limits() -> None:
    for header, status in (((b"x", b"y" * 17_000), 431), ((b"content-encoding", b"gzip"), 415)):
        sent: list[Message] = []
        asyncio.run(_send_request(make_guard(_never), [(b"host", b"10.1.2.3"), header], sent, path="/readyz"))
        assert sent[0]["status"] == status


def test_too_large_bodies_and_headers_are_rejected(server: SmallServer) -> None:
    large = {"text": "x" * (1024 * 1024)}
    check_error(server.client.post(f"{API}/trace", json=large), 413, "body_too_large")

    def send_chunks() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    check_error(server.client.post(f"{API}/trace", content=send_chunks()), 413, "body_too_large")
    check_error(server.client.get("/livez", headers={"x": "y" * 17_000}), 431, "headers_too_large")


@pytest.mark.parametrize("length", ["-5", "x", "9" * 5000])
def test_an_invalid_content_length_is_rejected(length: str) -> None:
    headers = [(b"host", b"localhost"), (b"content-length", length.encode())]
    assert _status(make_guard(_never, ServeSettings()), headers) in (413, 431)


def test_compressed_bodies_are_rejected(server: SmallServer) -> None:
    response = server.client.post(f"{API}/trace", content=b"x", headers={"content-encoding": "gzip"})
    check_error(response, 415, "bad_encoding")


def test_a_missing_body_times_out() -> None:
    async def nothing() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    guard = make_guard(_never, ServeSettings(body_timeout=0.05))
    assert _status(guard, [(b"host", b"localhost")], nothing) == 408


def test_a_disconnect_cancels_the_request() -> None:
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

    assert _status(make_guard(endless, ServeSettings()), [(b"host", b"localhost")], receive) is None
    assert stopped.is_set()


def test_a_disconnect_before_the_body_gets_no_response() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    assert _status(make_guard(_never, ServeSettings()), [(b"host", b"localhost")], receive) is None


def test_an_application_error_gets_one_response() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("secret words")

    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("secret words")

    with capture_log() as lines:
        assert [message.get("status") for message in _send_and_collect(make_guard(fails), LOCAL_HOST)] == [500, None]
        assert [message.get("status") for message in _send_and_collect(make_guard(breaks_off), LOCAL_HOST)] == [200]
    assert lines.getvalue().count("a request failed: ValueError at test_guard.py") == 2
    assert "secret" not in lines.getvalue()


def test_running_requests_get_503_on_shutdown() -> None:
    started = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    sent: list[Message] = []

    async def shut_down() -> None:
        task = asyncio.ensure_future(_send_request(make_guard(endless), LOCAL_HOST, sent))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(shut_down())
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]


def test_new_requests_get_503_while_draining() -> None:
    guard = make_guard(_never)
    guard.gateway.draining = True
    assert _status(guard, LOCAL_HOST) == 503


@pytest.mark.parametrize("more", [True, False])
def test_a_rejected_body_is_read_only_to_its_end(more: bool) -> None:
    """The guard does not wait for data after the end of the body."""
    messages = [{"type": "http.request", "body": b"x" * 11, "more_body": more}]
    messages += [{"type": "http.request", "body": b"x", "more_body": False}] * more

    async def receive() -> Message:
        assert messages, "the guard reads past the end of the body"
        return messages.pop(0)

    assert _status(make_guard(_never, ServeSettings(body_bytes=10)), LOCAL_HOST, receive) == 413
    assert not messages


def test_expect_continue_is_rejected_at_once() -> None:
    async def receive() -> Message:
        raise AssertionError("this would make the client send its body")

    headers = [*LOCAL_HOST, (b"expect", b"100-continue"), (b"content-length", b"99999999")]
    assert _status(make_guard(_never), headers, receive) == 413


@pytest.mark.parametrize("path", ["/v2/document", "/translate_file", "/v2/translate"])
def test_only_document_routes_allow_large_bodies(path: str) -> None:
    guard = make_guard(_empty, ServeSettings(body_bytes=10, documents_bytes=100))
    statuses = []
    for size in (b"11", b"101"):
        sent: list[Message] = []
        asyncio.run(_send_request(guard, [*LOCAL_HOST, (b"content-length", size)], sent, path=path))
        statuses.append(sent[0]["status"])
    assert statuses == ([413, 413] if path == "/v2/translate" else [204, 413])


def test_page_files_are_served(server: SmallServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "a.js").write_text("export const x = 1;", "utf-8")
    (folder / "notes.txt").write_text("none of the page", "utf-8")
    (tmp_path / "secret.js").write_text("secret", "utf-8")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    response = catalogue_routes._file_response(folder, "a.js")
    assert response.media_type == "text/javascript; charset=utf-8"
    for path in ("", "nothing.js", "notes.txt", "link.js", "../secret.js", "/etc/passwd", "a.js\0", "x" * 5000):
        with pytest.raises(Exception, match="no_page"):
            catalogue_routes._file_response(folder, path)


@pytest.mark.parametrize(
    "path", ["..%2f..%2ferrors.py", "%2e%2e/%2e%2e/errors.py", "..%5cerrors.py", "a%00.js", "/etc/hosts"]
)
def test_files_outside_the_page_are_not_served(server: SmallServer, path: str) -> None:
    response = server.client.get(f"/page/{path}")
    assert response.status_code == 404
    assert "AttendoError" not in response.text


def test_infinity_is_null_in_json(server: SmallServer) -> None:
    response = server.raw("mask", text=TEXT)
    assert response.headers["content-type"] == "application/json"
    assert "null" in response.text
    assert "Infinity" not in response.text


def make_guard(app: Any, settings: ServeSettings | None = None) -> RequestGuard:
    """A guard with a stub gateway."""
    gateway: Any = SimpleNamespace(
        settings=settings or ServeSettings(), metrics=ServerMetrics(), draining=False, is_full=False
    )
    return RequestGuard(app, gateway)


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the guard passed the request on")


async def _empty(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _status(guard: RequestGuard, headers: Headers, receive: Receive | None = None) -> int | None:
    """The response status of a request with these headers, None without a response."""
    return next(
        (message["status"] for message in _send_and_collect(guard, headers, receive) if "status" in message), None
    )


def _send_and_collect(guard: RequestGuard, headers: Headers, receive: Receive | None = None) -> list[Message]:
    sent: list[Message] = []
    asyncio.run(_send_request(guard, headers, sent, receive))
    return sent


async def _send_request(
    guard: RequestGuard, headers: Headers, sent: list[Message], receive: Receive | None = None, path: str = "/api/v1/x"
) -> None:
    """Sends a request without a body, by a client that stays connected, unless `receive` is given."""
    messages = [{"type": "http.request", "body": b""}]

    async def receive_empty() -> Message:
        if not messages:
            await asyncio.sleep(60)
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    await guard(scope, receive or receive_empty, send)


def test_S5_a_full_server_rejects_before_reading_the_request() -> None:
    for path, passed in (("/translate", False), ("/v1/chat/completions", False), ("/api/v1/answer", True)):
        guard, sent = make_guard(_empty), list[Message]()
        guard._route_templates = SimpleNamespace(match=lambda path: path)  # type: ignore[assignment]
        guard.gateway.is_full, guard.gateway.num_waiting = True, 7  # type: ignore[misc]
        asyncio.run(_send_request(guard, LOCAL_HOST, sent, path=path))
        headers = dict(sent[0]["headers"])
        assert sent[0]["status"] == (204 if passed else 429), path
        assert passed or (headers[b"retry-after"] == b"1" and b"7 requests are already waiting" in sent[1]["body"])
        assert b"connection" not in headers, "the connection can be reused"


def test_generation_routes_exist(server: SmallServer) -> None:
    assert {("POST", route) for route in GENERATION_ROUTES} <= set(list_routes(server.app))
