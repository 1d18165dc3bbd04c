"""Connection limit and timeouts for clients that send or read too slowly."""

import asyncio
import logging
import time
from typing import Any

import h11
from pydantic_core import to_json
from uvicorn.protocols.http.h11_impl import H11Protocol

from attendo.serve.http.access_log import get_request_id, log_config
from attendo.serve.http.errors import ApiError
from attendo.serve.http.middleware import SECURITY_HEADERS
from attendo.serve.settings import ServeSettings

# Connections accepted per iteration of the event loop. Each is an open file, and closing one takes some iterations.
_ACCEPT_BACKLOG = 16
_WARN_INTERVAL_SECONDS = 60.0  # between two log lines about too many connections
_log = logging.getLogger("attendo.serve")


def uvicorn_options(settings: ServeSettings) -> dict[str, Any]:
    """Return options of `uvicorn.Config`: connection and header limits, and the log format."""
    return {
        "http": type(
            "TimedConnection",
            (TimedH11Protocol,),
            {"timeout": settings.header_timeout, "limiter": ConnectionLimiter(settings.max_connections)},
        ),
        "backlog": _ACCEPT_BACKLOG,
        "ws": "none",
        "h11_max_incomplete_event_size": 2 * settings.header_bytes,  # up to here `RequestGuard` sends the error
        "server_header": False,
        "access_log": False,
        "log_config": log_config(settings.log_format, settings.log_level.upper()),
    }


class ConnectionLimiter:
    """Limits the connections of a server. Above the limit the longest idle connection is closed."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.idle: dict[TimedH11Protocol, None] = {}  # without complete headers, longest idle first
        self._warned_at = -_WARN_INTERVAL_SECONDS

    def evict_idle(self, new: "TimedH11Protocol") -> None:
        self._warn()
        longest = next(iter(self.idle))
        if longest is new:
            new.send_error(ApiError("too_many_connections", most=self.max_connections))
        else:
            longest.transport.abort()
        longest.unregister()

    def _warn(self) -> None:
        """Log at most once per interval: a line per connection would fill the disk during a flood."""
        if (now := time.monotonic()) >= self._warned_at + _WARN_INTERVAL_SECONDS:
            self._warned_at = now
            _log.warning("more than %d connections: those that ask for nothing are closed", self.max_connections)


class TimedH11Protocol(H11Protocol):
    """HTTP connection with timeouts. uvicorn has none for incomplete headers or for slow readers."""

    timeout = 10.0
    limiter = ConnectionLimiter(1000)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(self.timeout, self.transport.abort)
        self.limiter.idle[self] = None
        if len(self.connections) > self.limiter.max_connections:
            self.limiter.evict_idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel_timer(self._header_timer)
        _cancel_timer(self._write_timer)
        self.unregister()
        super().connection_lost(exc)

    def unregister(self) -> None:
        """Remove the connection from the count."""
        self.limiter.idle.pop(self, None)
        self.connections.discard(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        nothing_follows = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if nothing_follows and self in self.connections:
            self.limiter.idle[self] = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # headers are complete; `RequestGuard` limits the body
            _cancel_timer(self._header_timer)
            self._header_timer = None
            self.limiter.idle.pop(self, None)
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.timeout, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel_timer(self._write_timer)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Send the error of malformed HTTP."""
        most = self.config.h11_max_incomplete_event_size or 0
        too_large = len(self.conn.trailing_data[0]) > most
        self.send_error(ApiError("headers_too_large", most=most) if too_large else ApiError("bad_http"))

    def send_error(self, error: ApiError) -> None:
        """Send an error before the path is known, in the format of the native API."""
        number = get_request_id(())
        body = to_json(error.content(request_id=number))
        headers = {
            **SECURITY_HEADERS,
            "x-request-id": number,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        events = (
            h11.Response(status_code=error.status_code, headers=list(headers.items()), reason=b""),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
