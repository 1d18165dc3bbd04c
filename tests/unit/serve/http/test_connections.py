"""Above the connection limit, idle connections are closed and requests are served."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import four_models
import pytest
from error_codes import fragment, has_code
from raw_http import RawResponse, connect, exchange, receive_all, request, serve_app

from attendo.errors import UsageError
from attendo.serve import settings
from attendo.serve.app import create_app
from attendo.serve.settings import ServeSettings

LIVE = request("/livez", method="GET")
MAX_CONNECTIONS = 8


@contextmanager
def open_connections(count: int, sent: bytes = b"", in_flight: int = 0) -> Iterator[tuple[int, list[socket.socket]]]:
    """Serves with at most eight connections and opens `count` clients. Yields the port and the clients.

    Waits until `in_flight` requests are running, because a connection is idle until its request is read.
    """
    app = create_app(four_models.make_specs("forth"), ServeSettings(max_connections=MAX_CONNECTIONS))
    with serve_app(app) as port, ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(connect(port)))
            clients[-1].sendall(sent)
        while app.gateway.metrics.registry.get_sample_value("attendo_in_flight_requests") != in_flight:
            threading.Event().wait(0.005)
        yield port, clients


def receive_json(client: socket.socket, sent: bytes = b"") -> RawResponse:
    """The JSON response on a connection that stays open."""
    client.sendall(sent)
    data = b""
    while not data.endswith(b"}"):
        part = client.recv(65_536)
        assert part, "the connection was closed"
        data += part
    return RawResponse(data)


@pytest.mark.short(1)
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_the_longest_idle_connections_are_closed(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), open_connections(5 * MAX_CONNECTIONS, sent) as (port, clients):
        assert exchange(port, LIVE).status == 200
        assert all(receive_all(each) == b"" for each in clients[: 4 * MAX_CONNECTIONS + 1])  # closed without a response
        for each in clients[-2:]:
            each.settimeout(0.05)
            with pytest.raises(TimeoutError):
                each.recv(1)
    lines = [each.getMessage() for each in caplog.records if "connections" in each.getMessage()]
    assert lines == ["more than 8 connections: those that ask for nothing are closed"]


def test_a_connection_is_idle_after_its_response() -> None:
    keep_alive = LIVE.replace(b"Connection: close\r\n", b"")
    with open_connections(1) as (port, (first,)), ExitStack() as stack:
        assert [receive_json(first, keep_alive).status for _ in range(3)] == [200] * 3
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(connect(port))
        assert receive_all(first) == b""
        assert exchange(port, LIVE).status == 200


def test_a_new_connection_is_rejected_if_all_are_busy() -> None:
    """A missing body keeps a connection busy. The guard limits how long."""
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
    with open_connections(MAX_CONNECTIONS, head, in_flight=MAX_CONNECTIONS) as (port, clients):
        rejected = exchange(port, b"")
        error = json.loads(rejected.body)["error"]
        assert (rejected.status, error["code"]) == (503, "too_many_connections")
        assert fragment("too_many_connections", most=8) in error["message"]
        assert receive_json(clients[0], b"{}{}{").status == 400  # the connection is still open
        assert exchange(port, LIVE).status == 200


@pytest.mark.parametrize(("files", "most"), [(200, 100), (1024, 896), (8192, 1000), (-1, 1000), (1, 1)])
def test_max_connections_stays_below_the_file_limit(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    def limits(kind: Any) -> tuple[int, int]:
        return files, files

    monkeypatch.setattr(settings.resource, "getrlimit", limits)
    assert ServeSettings().max_connections == most
    assert ServeSettings(max_connections=most).max_connections == most
    with pytest.raises(
        UsageError,
        check=has_code("setting_invalid", fault=has_code("field_greater_than_equal", name="max_connections", ge=1)),
    ):
        ServeSettings(max_connections=0)
