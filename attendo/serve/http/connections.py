"""Connections that end when whoever made them is too slow to ask, or to read: without that, a few can take them all."""

import asyncio
import logging
import time
from typing import Any

import h11
from pydantic_core import to_json
from uvicorn.protocols.http.h11_impl import H11Protocol

from attendo.serve.http.access_log import log_config, request_id
from attendo.serve.http.errors import Refusal
from attendo.serve.http.middleware import HEADERS
from attendo.serve.settings import ServeSettings

_AT_ONCE = 16  # taken in by one turn of the event loop: each is an open file, and it takes some turns to close one
_TELLING_SECONDS = 60.0  # between two lines of the log about too many
_log = logging.getLogger("attendo.serve")


def uvicorn_options(settings: ServeSettings) -> dict[str, Any]:
    """Of `uvicorn.Config`: the limits that hold before a request has become one, and how its lines are written."""
    return {
        "http": type(
            "TimedConnection",
            (Connection,),
            {"seconds": settings.first_byte_seconds, "crowd": Crowd(settings.connections)},
        ),
        "backlog": _AT_ONCE,
        "ws": "none",
        "h11_max_incomplete_event_size": 2 * settings.header_bytes,  # up to here the guard refuses with words
        "server_header": False,
        "access_log": False,
        "log_config": log_config(settings.log_format, settings.log_level.upper()),
    }


class Crowd:
    """All connections of a server: where there are too many, those who ask for nothing make room for those who come."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: dict[Connection, None] = {}  # has not asked, or not all of it; the longest first
        self._told_at = -_TELLING_SECONDS

    def make_room(self, come: "Connection") -> None:
        self._tell()
        longest = next(iter(self.idle))
        if longest is come:
            come.send_refusal(Refusal("too_many_connections", most=self.most))
        else:
            longest.transport.abort()
        longest.forget()

    def _tell(self) -> None:
        """Once in a while: a line for each would fill the disk of whoever is flooded."""
        if (now := time.monotonic()) >= self._told_at + _TELLING_SECONDS:
            self._told_at = now
            _log.warning("more than %d connections: those that ask for nothing are closed", self.most)


class Connection(H11Protocol):
    """uvicorn waits for the next request on a connection that was used, but without end for the rest of a request."""

    seconds = 10.0
    crowd = Crowd(1000)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asking = self.loop.call_later(self.seconds, self.transport.abort)
        self.crowd.idle[self] = None
        if len(self.connections) > self.crowd.most:
            self.crowd.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._asking)
        _stop(self._reading)
        self.forget()
        super().connection_lost(exc)

    def forget(self) -> None:
        """It counts no more."""
        self.crowd.idle.pop(self, None)
        self.connections.discard(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        nothing_follows = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if nothing_follows and self in self.connections:
            self.crowd.idle[self] = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # all headers are there; the guard looks after the body
            _stop(self._asking)
            self._asking = None
            self.crowd.idle.pop(self, None)
        elif self._asking is None:
            self._asking = self.loop.call_later(self.seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        _stop(self._reading)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no request at all."""
        most = self.config.h11_max_incomplete_event_size or 0
        too_large = len(self.conn.trailing_data[0]) > most
        self.send_refusal(Refusal("headers_too_large", most=most) if too_large else Refusal("bad_http"))

    def send_refusal(self, refusal: Refusal) -> None:
        """Before anybody knows what is asked for: there is no path, so it is told in our own shape."""
        number = request_id(())
        body = to_json(refusal.content(request_id=number))
        headers = {
            **HEADERS,
            "x-request-id": number,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        events = (
            h11.Response(status_code=refusal.status_code, headers=list(headers.items()), reason=b""),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
