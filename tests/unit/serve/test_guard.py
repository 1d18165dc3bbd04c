"""Every request passes the guard, and every answer carries its headers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_server import API, TEXT, Asking, error_of

from attendo.serve.explorer import page
from attendo.serve.guard import HEADERS, Guard, host_name
from attendo.serve.settings import ServeSettings

Message = dict[str, Any]


@pytest.mark.parametrize("path", ["/", "/nothing", f"{API}/models", f"{API}/trace", "/page/main.js"])
def test_every_answer_has_the_headers(server: Asking, path: str) -> None:
    headers = server.client.get(path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value or (name == "cache-control" and headers[name] == "no-cache"), name
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_refusals_of_the_guard_have_them_too(server: Asking) -> None:
    answered = server.client.get("/", headers={"host": "evil.example"})
    error_of(answered, 400, "bad_host")
    assert answered.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["localhost", "localhost:8800", "127.0.0.1:1", "[::1]:8800", "LOCALHOST"])
def test_names_of_this_machine_are_known(server: Asking, host: str) -> None:
    assert server.client.get(f"{API}/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"])
def test_other_names_are_refused(server: Asking, host: str) -> None:
    error_of(server.client.get(f"{API}/models", headers={"host": host}), 400, "bad_host")


def test_a_host_can_be_added() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    settings = ServeSettings(hosts=("192.0.2.7",))
    assert _status(Guard(app, settings), [(b"host", b"192.0.2.7:80")]) == 204
    assert _status(Guard(app, settings), [(b"host", b"localhost")]) == 400
    assert _status(Guard(app, settings), [(b"host", b"192.0.2.7"), (b"host", b"192.0.2.7")]) == 400
    assert _status(Guard(app, settings), []) == 400
    assert host_name("[FE80::1]:80") == "fe80::1"


def test_bodies_and_headers_have_an_end(server: Asking) -> None:
    large = {"text": "x" * (1024 * 1024)}
    error_of(server.client.post(f"{API}/trace", json=large), 413, "body_too_large")

    def dribbled() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    error_of(server.client.post(f"{API}/trace", content=dribbled()), 413, "body_too_large")
    error_of(server.client.get("/", headers={"x": "y" * 17_000}), 431, "headers_too_large")


@pytest.mark.parametrize("length", ["-5", "x", "9" * 5000])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    sent = [(b"host", b"localhost"), (b"content-length", length.encode())]
    assert _status(Guard(_never, ServeSettings()), sent) in (413, 431)


def test_compressed_bodies_are_not_read(server: Asking) -> None:
    answered = server.client.post(f"{API}/trace", content=b"x", headers={"content-encoding": "gzip"})
    error_of(answered, 415, "bad_encoding")


def test_a_body_must_arrive() -> None:
    async def nothing() -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    guard = Guard(_never, ServeSettings(body_seconds=0.05))
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

    assert _status(Guard(endless, ServeSettings()), [(b"host", b"localhost")], receive) is None
    assert stopped.is_set()


def test_a_client_that_left_before_its_body_came_is_not_answered() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    assert _status(Guard(_never, ServeSettings()), [(b"host", b"localhost")], receive) is None


def test_files_of_the_page_are_served(server: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "a.js").write_text("export const x = 1;", "utf-8")
    (folder / "notes.txt").write_text("none of the page", "utf-8")
    (tmp_path / "secret.js").write_text("secret", "utf-8")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    answered = page._file(folder, "a.js")
    assert answered.media_type == "text/javascript; charset=utf-8"
    for path in ("", "nothing.js", "notes.txt", "link.js", "../secret.js", "/etc/passwd", "a.js\0", "x" * 5000):
        with pytest.raises(Exception, match="no_page"):
            page._file(folder, path)


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


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the guard let it pass")


def _status(guard: Guard, headers: list[tuple[bytes, bytes]], receive: Callable[[], Any] | None = None) -> int | None:
    """What a request with these headers is answered with."""
    sent: list[Message] = []

    async def whole() -> Message:
        if sent or whole.asked:  # type: ignore[attr-defined]
            await asyncio.sleep(60)
        whole.asked = True  # type: ignore[attr-defined]
        return {"type": "http.request", "body": b""}

    whole.asked = False  # type: ignore[attr-defined]

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}
    asyncio.run(guard(scope, receive or whole, send))
    return next((message["status"] for message in sent if message["type"] == "http.response.start"), None)
