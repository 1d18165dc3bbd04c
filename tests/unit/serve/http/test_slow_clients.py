"""S4: clients that send or read too slowly are disconnected, and other clients do not wait for them."""

import asyncio
import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import four_models
import pytest
from raw_http import MAX_SECONDS, connect, exchange, receive_all, request, serve_app
from small_server import long_model
from tiny import PATIENCE

from attendo.serve.app import create_app
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n"
# Sent before the slow bytes: nothing, part of a line, some of the headers, all of them.
BEGINNINGS = (b"", b"GET /", HEAD, HEAD + b"\r\n")
REQUEST = request("/translate", json.dumps({"q": four_models.ENGLISH, "source": "en", "target": "zh"}).encode())
LIMITS = {"header_timeout": 0.5, "body_timeout": 0.5}


def test_slow_connections_are_closed_and_others_served() -> None:
    with serve_app(create_app(four_models.make_specs("forth"), ServeSettings(**LIMITS))) as port:
        expected = exchange(port, REQUEST).body
        with slow_connections(port, 24, every=0.1) as slow:
            for _ in range(5):
                answer = exchange(port, REQUEST)
                assert (answer.status, answer.body) == (200, expected)
            responses = [receive_all(each) for each in slow]
    statuses = {response[9:12] for response in responses}
    assert statuses == {b"", b"408"}  # 408 needs complete headers
    assert sum(response.startswith(b"HTTP/1.1 408") for response in responses) == 6


@pytest.mark.slow
def test_200_slow_connections_do_not_delay_others() -> None:
    """Other processes disturb the times, so one success in three is enough."""
    for _ in range(3):
        before, during, after, lifetimes = measure_with_200_slow_clients()
        assert len(lifetimes) >= 400  # closed clients reconnected
        assert max(lifetimes) <= MAX_SECONDS
        limit = 1.2 * max(before, after) + 0.02
        if during <= limit:
            break
    assert during <= limit, f"{before:.3f} s before and {after:.3f} s after"


def measure_with_200_slow_clients() -> tuple[float, float, float, list[float]]:
    """Latency of other clients before, during and after, and the lifetime of each slow connection, in seconds."""
    with serve_app(create_app(four_models.make_specs("forth"))) as port:
        exchange(port, REQUEST)
        before = _percentile(port, seconds=10)
        with reconnecting_clients(port, 200) as lifetimes:
            during = _percentile(port, seconds=30)
        return before, during, _percentile(port, seconds=10), lifetimes


@pytest.mark.short(1)
@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\n"])
def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    with serve_app(_make_guard(_respond_ok)) as port, connect(port) as client:
        client.sendall(sent)
        assert receive_all(client) == b""


def test_a_connection_is_reused_then_closed() -> None:
    keep_alive = request("/", method="GET").replace(b"Connection: close\r\n", b"")
    with serve_app(_make_guard(_respond_ok)) as port, connect(port) as client:
        for pause in (0.0, 1.5 * LIMITS["header_timeout"]):  # the limit does not apply between two requests
            client.sendall(keep_alive)
            _receive_responses(client, 1)
            time.sleep(pause)
        client.sendall(keep_alive * 3)  # pipelined
        _receive_responses(client, 3)
        client.sendall(keep_alive[:20])
        assert receive_all(client) == b""


def _receive_responses(client: socket.socket, count: int) -> None:
    answer = b""
    while answer.count(b"ok") < count:
        part = client.recv(65_536)
        assert part, "the connection was closed"
        answer += part


@pytest.mark.slow
def test_slow_computation_is_not_timed_out() -> None:
    async def slow_app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.2)
        await _respond_ok(scope, receive, send)

    with serve_app(_make_guard(slow_app)) as port:
        assert exchange(port, request("/", method="GET")).status == 200


@pytest.mark.slow
def test_a_client_that_does_not_read_is_dropped() -> None:
    stopped = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        finally:
            stopped.set()

    guard = _make_guard(endless)
    with serve_app(guard) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", port))
        client.sendall(request("/", method="GET"))
        assert stopped.wait(PATIENCE)
    assert guard.gateway.metrics.registry.get_sample_value("attendo_cancelled_total") == 1


def test_disconnects_are_counted_once_and_cleaned_up() -> None:
    """The answers are so long that a request runs until its client disconnects."""
    slow = ModelSpec("slow", long_model(400))
    settings = ServeSettings(deadline_seconds=PATIENCE, max_queue_seconds=PATIENCE)
    app = create_app([*four_models.make_specs("forth"), slow], settings)
    value = app.gateway.metrics.registry.get_sample_value
    chat = {"model": "slow", "messages": [{"role": "user", "content": four_models.ENGLISH}], "stream": True}
    with serve_app(app) as port:
        for number in range(12):
            with connect(port) as client:
                path, body = "/api/v1/generate", {"model": "slow", "texts": [four_models.ENGLISH]}
                if number % 2:
                    path, body = "/v1/chat/completions", chat
                client.sendall(request(path, json.dumps(body).encode()))
                if number % 3:
                    _wait_until(lambda: value("attendo_in_flight_requests") == 1)
        _wait_until(lambda: value("attendo_in_flight_requests") == 0)
        _wait_until(lambda: app.gateway.get_model("slow").worker.num_running == 0)
        cancelled = value("attendo_cancelled_total") or 0
        completed = sum(
            sample.value
            for metric in app.gateway.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "attendo_requests_total" and sample.labels["status"] != "499"
        )
        assert cancelled + completed == 12
        assert cancelled >= 6
        assert exchange(port, REQUEST).status == 200


@contextmanager
def slow_connections(port: int, count: int, every: float) -> Iterator[list[socket.socket]]:
    """Connections that send a byte every `every` seconds until they are closed."""
    clients = []
    for number in range(count):  # each sends its beginning at once, long before its time limit
        clients.append(connect(port))
        clients[-1].sendall(BEGINNINGS[number % len(BEGINNINGS)])
    stop = threading.Event()

    def send_slowly() -> None:
        alive = {*clients}
        while not stop.wait(every):
            for client in [*alive]:
                try:
                    client.send(b"x")
                except OSError:
                    alive.discard(client)

    thread = threading.Thread(target=send_slowly)
    thread.start()
    try:
        yield clients
    finally:
        stop.set()
        thread.join()
        for client in clients:
            client.close()


@contextmanager
def reconnecting_clients(port: int, count: int) -> Iterator[list[float]]:
    """Keeps `count` connections that send a byte a second and reconnect when closed. Yields lifetimes in seconds."""
    lifetimes: list[float] = []
    stop = threading.Event()

    def send_slowly() -> None:
        started: dict[socket.socket, float] = {}
        with selectors.DefaultSelector() as selector:
            while not stop.is_set():
                while len(started) < count:
                    client = connect(port)
                    client.sendall(BEGINNINGS[(len(started) + len(lifetimes)) % len(BEGINNINGS)])
                    started[client] = time.monotonic()
                    selector.register(client, selectors.EVENT_READ)
                next_byte = time.monotonic() + 1.0
                while (left := next_byte - time.monotonic()) > 0 and not stop.is_set():
                    for key, _ in selector.select(left):
                        _remove_closed(key.fileobj, selector, started, lifetimes)  # type: ignore[arg-type]
                for client in started:
                    with suppress(OSError):  # closed; the selector reports it
                        client.send(b"x")
        for client in started:
            client.close()

    thread = threading.Thread(target=send_slowly)
    thread.start()
    try:
        yield lifetimes
    finally:
        stop.set()
        thread.join()


def _remove_closed(
    client: socket.socket, selector: selectors.BaseSelector, started: dict[socket.socket, float], lifetimes: list[float]
) -> None:
    """Removes the connection if it is closed. A response may arrive first."""
    with suppress(ConnectionResetError):
        if client.recv(65_536):
            return
    selector.unregister(client)
    client.close()
    lifetimes.append(time.monotonic() - started.pop(client))


async def _respond_ok(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def _make_guard(app: Any) -> RequestGuard:
    gateway: Any = SimpleNamespace(
        settings=ServeSettings(**LIMITS), metrics=ServerMetrics(), draining=False, is_full=False
    )
    return RequestGuard(app, gateway)


def _percentile(port: int, seconds: float) -> float:
    """The 99th percentile of the seconds that a request takes."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        assert exchange(port, REQUEST).status == 200
        times.append(time.monotonic() - begin)
    return sorted(times)[int(len(times) * 0.99)]


def _wait_until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.005)
