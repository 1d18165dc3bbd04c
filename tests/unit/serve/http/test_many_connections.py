"""More connections than a server may have: those that ask for nothing are closed, and whoever asks is answered."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import polyglot
import pytest
from error_codes import fragment, has_code
from raw_http import Answer, connected, exchanged, received, request, served

from attendo.errors import UsageError
from attendo.serve import settings
from attendo.serve.app import create_app
from attendo.serve.settings import ServeSettings

LIVE = request("/livez", method="GET")
MOST = 8


@contextmanager
def crowded(count: int, sent: bytes = b"", in_flight: int = 0) -> Iterator[tuple[int, list[socket.socket]]]:
    """The port of a server that may have eight connections, and so many that were made, one after the other.

    As many as should be are in flight: until a server has read what was asked, whoever asked is idle.
    """
    app = create_app(polyglot.served("forth"), ServeSettings(max_connections=MOST))
    with served(app) as port, ExitStack() as stack:
        clients = []
        for _ in range(count):
            clients.append(stack.enter_context(connected(port)))
            clients[-1].sendall(sent)
        while app.gateway.metrics.registry.get_sample_value("attendo_in_flight_requests") != in_flight:
            threading.Event().wait(0.005)
        yield port, clients


def answered(client: socket.socket, sent: bytes = b"") -> Answer:
    """On a connection that is kept."""
    client.sendall(sent)
    data = b""
    while not data.endswith(b"}"):
        part = client.recv(65_536)
        assert part, "the connection was closed"
        data += part
    return Answer(data)


@pytest.mark.short(1)
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_whoever_asks_is_answered_and_the_longest_idle_are_closed(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), crowded(5 * MOST, sent) as (port, clients):
        assert exchanged(port, LIVE).status == 200
        assert all(received(each) == b"" for each in clients[: 4 * MOST + 1])  # closed without a word
        for each in clients[-2:]:
            each.settimeout(0.05)
            with pytest.raises(TimeoutError):
                each.recv(1)
    lines = [each.getMessage() for each in caplog.records if "connections" in each.getMessage()]
    assert lines == ["more than 8 connections: those that ask for nothing are closed"]


def test_one_that_was_answered_is_idle_again() -> None:
    kept = LIVE.replace(b"Connection: close\r\n", b"")
    with crowded(1) as (port, (first,)), ExitStack() as stack:
        assert [answered(first, kept).status for _ in range(3)] == [200] * 3
        for _ in range(MOST):
            stack.enter_context(connected(port))
        assert received(first) == b""
        assert exchanged(port, LIVE).status == 200


def test_where_all_are_being_answered_who_comes_is_told_so() -> None:
    """A body that does not come keeps a connection busy; the guard looks after those."""
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
    with crowded(MOST, head, in_flight=MOST) as (port, clients):
        refused = exchanged(port, b"")
        told = json.loads(refused.body)["error"]
        assert (refused.status, told["code"]) == (503, "too_many_connections")
        assert fragment("too_many_connections", most=8) in told["message"]
        assert answered(clients[0], b"{}{}{").status == 400  # it was there all the time
        assert exchanged(port, LIVE).status == 200


@pytest.mark.parametrize(("files", "most"), [(200, 100), (1024, 896), (8192, 1000), (-1, 1000), (1, 1)])
def test_there_are_fewer_than_files_that_may_be_open(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    def limits(kind: Any) -> tuple[int, int]:
        return files, files

    monkeypatch.setattr(settings.resource, "getrlimit", limits)
    assert ServeSettings().max_connections == most
    assert ServeSettings(max_connections=most).max_connections == most
    with pytest.raises(
        UsageError,
        check=has_code("setting_invalid", name="max_connections", reason="input should be greater than or equal to 1"),
    ):
        ServeSettings(max_connections=0)
