"""S4: whoever is too slow to ask, or to read, loses the connection, and nobody else waits for them."""

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

import polyglot
import pytest
from raw_http import PROMISED, connected, exchanged, received, request, served
from tiny import PATIENCE

from attendo.serve.app import create_app
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.settings import ServeSettings

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n"
# What each sends before it begins to dribble: nothing, part of a line, of the headers, and all of them.
BEGINNINGS = (b"", b"GET /", HEAD, HEAD + b"\r\n")
ASKED = request("/translate", json.dumps({"q": polyglot.ENGLISH, "source": "en", "target": "zh"}).encode())
LIMITS = {"header_timeout": 0.5, "body_timeout": 0.5}


def test_connections_that_dribble_are_closed_and_others_answered() -> None:
    with served(create_app(polyglot.served("forth"), ServeSettings(**LIMITS))) as port:
        expected = exchanged(port, ASKED).body
        with dribbling(port, 24, every=0.1) as slow:
            for _ in range(5):
                answered = exchanged(port, ASKED)
                assert (answered.status, answered.body) == (200, expected)
            endings = [received(each) for each in slow]
    told = {ending[9:12] for ending in endings}
    assert told == {b"", b"408"}  # a request whose headers have come is told why
    assert sum(ending.startswith(b"HTTP/1.1 408") for ending in endings) == 6


@pytest.mark.slow
def test_two_hundred_of_them_for_half_a_minute() -> None:
    """With times, which mean something where nothing else runs beside it."""
    before, during, after, lives = two_hundred()
    assert len(lives) >= 400  # whoever was closed has come again, and again
    assert max(lives) <= PROMISED
    assert during <= 1.2 * max(before, after) + 0.02


def two_hundred() -> tuple[float, float, float, list[float]]:
    """What the others wait for before, during and after, and how long each that dribbles was let."""
    with served(create_app(polyglot.served("forth"))) as port:
        exchanged(port, ASKED)
        before = _percentile(port, seconds=10)
        with insisting(port, 200) as lives:
            during = _percentile(port, seconds=30)
        return before, during, _percentile(port, seconds=10), lives


@pytest.mark.short(1)
@pytest.mark.parametrize("said", [b"", b"G", b"GET / HTTP/1.1\r\n"])
def test_a_connection_that_says_next_to_nothing_is_closed(said: bytes) -> None:
    with served(_guard(_answering)) as port, connected(port) as client:
        client.sendall(said)
        assert received(client) == b""


def test_a_connection_may_be_used_again_and_then_is_closed() -> None:
    again = request("/", method="GET").replace(b"Connection: close\r\n", b"")
    with served(_guard(_answering)) as port, connected(port) as client:
        for pause in (0.0, 0.1, 0.3):
            client.sendall(again)
            answer = client.recv(65_536)
            while not answer.endswith(b"ok"):
                answer += client.recv(65_536)
            time.sleep(pause)
        client.sendall(again * 3)  # without waiting for the answers
        answer = b""
        while answer.count(b"ok") < 3:
            answer += client.recv(65_536)
        client.sendall(again[:20])
        assert received(client) == b""


@pytest.mark.slow
def test_what_takes_long_to_compute_is_waited_for() -> None:
    async def long(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1.2)
        await _answering(scope, receive, send)

    with served(_guard(long)) as port:
        assert exchanged(port, request("/", method="GET")).status == 200


@pytest.mark.slow
def test_who_does_not_read_is_not_written_to_for_ever() -> None:
    stopped = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        finally:
            stopped.set()

    guard = _guard(endless)
    with served(guard) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", port))
        client.sendall(request("/", method="GET"))
        assert stopped.wait(PATIENCE)
    assert guard.gateway.metrics.registry.get_sample_value("attendo_cancelled_total") == 1


def test_clients_that_hang_up_are_counted_once_and_leave_nothing_behind() -> None:
    app = create_app(polyglot.served("forth"))
    value = app.gateway.metrics.registry.get_sample_value
    streamed = {"model": "forth", "messages": [{"role": "user", "content": polyglot.ENGLISH}], "stream": True}
    with served(app) as port:
        for number in range(12):
            with connected(port) as client:
                body = json.dumps({"texts": [polyglot.ENGLISH], "min_length": 200, "max_length": 200}).encode()
                path = "/api/v1/generate"
                if number % 2:
                    path, body = "/v1/chat/completions", json.dumps({**streamed, "max_tokens": 500}).encode()
                client.sendall(request(path, body))
                if number % 3:
                    _until(lambda: value("attendo_in_flight_requests") == 1)
        _until(lambda: value("attendo_in_flight_requests") == 0)
        _until(lambda: app.gateway.get_model(None).worker.num_running == 0)
        left = value("attendo_cancelled_total") or 0
        stayed = sum(
            sample.value
            for metric in app.gateway.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "attendo_requests_total" and sample.labels["status"] != "499"
        )
        assert left + stayed == 12
        assert left >= 6
        assert exchanged(port, ASKED).status == 200


@contextmanager
def dribbling(port: int, count: int, every: float) -> Iterator[list[socket.socket]]:
    """Connections that send a byte every so many seconds, as long as they can."""
    clients = [connected(port) for _ in range(count)]
    for number, client in enumerate(clients):
        client.sendall(BEGINNINGS[number % len(BEGINNINGS)])
    over = threading.Event()

    def dribble() -> None:
        alive = {*clients}
        while not over.wait(every):
            for client in [*alive]:
                try:
                    client.send(b"x")
                except OSError:
                    alive.discard(client)

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield clients
    finally:
        over.set()
        thread.join()
        for client in clients:
            client.close()


@contextmanager
def insisting(port: int, count: int) -> Iterator[list[float]]:
    """As many at any time that send a byte a second, and come again when they are closed; seconds that each could."""
    lives: list[float] = []
    over = threading.Event()

    def dribble() -> None:
        begun: dict[socket.socket, float] = {}
        with selectors.DefaultSelector() as open_ones:
            while not over.is_set():
                while len(begun) < count:
                    client = connected(port)
                    client.sendall(BEGINNINGS[(len(begun) + len(lives)) % len(BEGINNINGS)])
                    begun[client] = time.monotonic()
                    open_ones.register(client, selectors.EVENT_READ)
                next_byte = time.monotonic() + 1.0
                while (left := next_byte - time.monotonic()) > 0 and not over.is_set():
                    for key, _ in open_ones.select(left):
                        _ended(key.fileobj, open_ones, begun, lives)  # type: ignore[arg-type]
                for client in begun:
                    with suppress(OSError):  # it is closed, and will be found so
                        client.send(b"x")
        for client in begun:
            client.close()

    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def _ended(
    client: socket.socket, open_ones: selectors.BaseSelector, begun: dict[socket.socket, float], lives: list[float]
) -> None:
    """Takes it out where it has; an answer may come before."""
    with suppress(ConnectionResetError):
        if client.recv(65_536):
            return
    open_ones.unregister(client)
    client.close()
    lives.append(time.monotonic() - begun.pop(client))


async def _answering(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def _guard(app: Any) -> RequestGuard:
    office: Any = SimpleNamespace(
        settings=ServeSettings(**LIMITS), metrics=ServerMetrics(), draining=False, is_full=False
    )
    return RequestGuard(app, office)


def _percentile(port: int, seconds: float) -> float:
    """The 99th, of the seconds that a request takes."""
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.monotonic()
        assert exchanged(port, ASKED).status == 200
        taken.append(time.monotonic() - begin)
    return sorted(taken)[int(len(taken) * 0.99)]


def _until(fact: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)
