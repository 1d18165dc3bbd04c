"""ASGI middleware: host, size and time limits, security and CORS headers, access log."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fastapi.routing import iter_route_contexts
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attendo.serve.http.access_log import HTTP_METHODS, QUIET_PATHS, AccessLogEntry, current_request, get_request_id
from attendo.serve.http.errors import ApiError, render_error, to_api_error
from attendo.serve.http.metrics import CLIENT_CLOSED_REQUEST, ServerMetrics
from attendo.serve.settings import ServeSettings

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
DOCUMENT_PATHS = ("/v2/document", "/translate_file")  # their body limit is `documents_bytes`
# Routes that generate text. If all models are full, their requests are rejected before the body is parsed. Parsing is
# the largest cost of a rejection, and a flood must not slow down running requests.
GENERATION_ROUTES = (
    "/translate",
    "/v2/translate",
    "/v1/chat/completions",
    "/v1/completions",
    "/hf/translation",
    "/hf/summarization",
    "/hf/models/{name}",
    "/api/v1/generate",
)
# Documents can be fetched while the server drains: they are lost when it ends.
DOCUMENT_RESULT_ROUTES = (
    *("/v2/document/{document_id}", "/v2/document/{document_id}/result"),
    "/download_file/{name}",
)
# Probes use addresses that are not in `hosts`. Their responses contain nothing that another page could exploit.
PROBE_PATHS = ("/livez", "/readyz", "/health")
_MAX_DRAIN_FACTOR = 8  # times the body limit: bytes of a rejected body that are read so that the client reads the error
_MAX_DRAIN_SECONDS = 2.0
# Authorization must be listed: * does not include it.
_PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "Authorization, *",
    "access-control-max-age": "600",
}
_EXPOSED_HEADERS = {"access-control-expose-headers": "X-Request-ID, Retry-After"}
UNKNOWN_ROUTE = "none"


class Gateway(Protocol):
    """The part of `ModelGateway` that `RequestGuard` uses. This package does not import `scheduling`."""

    settings: ServeSettings
    metrics: ServerMetrics
    draining: bool

    @property
    def is_full(self) -> bool: ...

    @property
    def num_waiting(self) -> int: ...


class RequestGuard:
    """Checks every request, and records it once in the metrics and the access log.

    It reads the whole body first, so that it can detect a disconnect and cancel the work.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self.app, self.gateway = app, gateway
        self._settings, self._metrics = gateway.settings, gateway.metrics
        self._route_templates = RouteTemplates(getattr(app, "routes", ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        method = scope["method"] if scope["method"] in HTTP_METHODS else "OTHER"
        entry = AccessLogEntry(get_request_id(scope["headers"]), method, self._route_templates.match(scope["path"]))
        answering = _ResponseSender(send, {**SECURITY_HEADERS, "x-request-id": entry.request_id})
        begin, token = time.monotonic(), current_request.set(entry)
        try:
            with self._metrics.track_in_flight():
                await self._handle(scope, receive, answering, entry)
        finally:
            entry.status = entry.status or answering.status
            entry.seconds = time.monotonic() - begin
            self._metrics.observe_request(entry)
            entry.write()
            current_request.reset(token)

    async def _handle(self, scope: Scope, receive: Receive, sender: "_ResponseSender", entry: AccessLogEntry) -> None:
        """Handle a request and send an error response if anything fails."""
        try:
            connected = await self._check_and_forward(scope, receive, sender, entry.route)
            entry.status = 0 if connected else CLIENT_CLOSED_REQUEST
        except asyncio.CancelledError:  # the server ends without waiting for this request
            await _send_error(ApiError("draining"), scope, receive, sender)
            raise
        except Exception as error:
            # Errors of the application have been sent and logged; this handles all others.
            refusal = ApiError("failed") if entry.refused else to_api_error(error)
            await _send_error(refusal, scope, receive, sender)

    async def _check_and_forward(self, scope: Scope, receive: Receive, sender: "_ResponseSender", route: str) -> bool:
        """Return False if the client disconnected before the response."""
        settings = self._settings
        most = settings.documents_bytes if scope["path"] in DOCUMENT_PATHS else settings.body_bytes
        incoming, allowed = _Body(receive, most), cors_headers(settings, scope["headers"])
        sender.headers.update(allowed)
        try:
            self._check_headers(scope, most)
            if self.gateway.draining and scope["path"] not in QUIET_PATHS and route not in DOCUMENT_RESULT_ROUTES:
                raise ApiError("draining")
            if (preflight := preflight_headers(scope["method"], scope["headers"], allowed)) is not None:
                await Response(status_code=204, headers=preflight)(scope, receive, sender)
                return True
            async with asyncio.timeout(settings.body_timeout):
                body = await incoming.read()
        except TimeoutError:
            await _send_error(ApiError("body_too_slow", seconds=settings.body_timeout), scope, receive, sender)
            return True
        except ApiError as refusal:
            if not any(name == b"expect" for name, _ in scope["headers"]):  # else it awaits 100-continue
                await incoming.drain(min(_MAX_DRAIN_SECONDS, settings.body_timeout))
            await _send_error(refusal, scope, receive, sender)
            return True
        if body is not None and route in GENERATION_ROUTES and scope["method"] == "POST" and self.gateway.is_full:
            busy = ApiError("busy", waiting=self.gateway.num_waiting)
            await render_error(busy, scope["path"])(scope, receive, sender)
            return True
        return body is not None and await _run_until_disconnect(self.app, scope, body, receive, sender)

    def _check_headers(self, scope: Scope, max_body_bytes: int) -> None:
        headers, settings = list(scope["headers"]), self._settings
        if sum(len(name) + len(value) + 4 for name, value in headers) > settings.header_bytes:
            raise ApiError("headers_too_large", most=settings.header_bytes)
        named = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if scope["path"] not in PROBE_PATHS and (len(named) != 1 or host_name(named[0]) not in settings.allowed_hosts):
            raise ApiError("bad_host", host=", ".join(named)[:100])
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
            # Request smuggling: proxy and server may use different headers and read the end of a body as a request.
            raise ApiError("two_lengths")
        for name, value in headers:
            text = value.decode("latin-1").strip().lower()
            if name == b"content-encoding" and text not in ("", "identity"):
                raise ApiError("bad_encoding", encoding=text[:40])
            if name == b"content-length" and (not text.isdecimal() or int(text[:20]) > max_body_bytes):
                raise ApiError("body_too_large", most=max_body_bytes)


class _ResponseSender:
    """Sends a response with additional headers and records its status and completion."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send, self.headers = send, dict(headers)
        self.status, self.complete = 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            names = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
            headers = [*message.get("headers", ()), *(each for each in more if each[0] not in names)]
            message = {**message, "headers": headers}
        await self._send(message)
        if message["type"] != "http.response.start" and not message.get("more_body", False):
            self.complete = True
        elif "body" in message:
            await asyncio.sleep(0)  # lets the disconnect watcher run while a response is sent


class _Body:
    """Request body with a size limit."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive, self._max_bytes = receive, max_bytes
        self._ended = False

    async def read(self) -> bytes | None:
        """Return the body, or None if the client disconnected before its end."""
        body = bytearray()
        while not self._ended:
            part = await self._receive_chunk()
            if part is None:
                return None
            body += part
            if len(body) > self._max_bytes:
                raise ApiError("body_too_large", most=self._max_bytes)
        return bytes(body)

    async def drain(self, seconds: float) -> None:
        """Read and discard the rest of a rejected body: a client cut off while sending does not read the response."""
        try:
            async with asyncio.timeout(seconds):
                left = self._max_bytes * _MAX_DRAIN_FACTOR
                while left > 0 and not self._ended:
                    left -= len(await self._receive_chunk() or b"")
        except TimeoutError:
            return

    async def _receive_chunk(self) -> bytes | None:
        message = await self._receive()
        left = message["type"] == "http.disconnect"
        self._ended = left or not message.get("more_body", False)
        return None if left else message.get("body", b"")


def host_name(host: str) -> str:
    """Return the host without port, and an IPv6 address without brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _send_error(error: ApiError, scope: Scope, receive: Receive, sender: _ResponseSender) -> None:
    """Send an error unless a response has started. The connection is closed, as the body is not read to its end."""
    if sender.status:
        return
    response = render_error(error, scope["path"])
    response.headers["connection"] = "close"
    await response(scope, receive, sender)


async def _run_until_disconnect(
    app: ASGIApp, scope: Scope, body: bytes, receive: Receive, sender: _ResponseSender
) -> bool:
    """Run the app until its response is complete. Cancel it and return False if the client disconnects first."""
    left, pending = asyncio.Event(), [body]

    async def replay_body() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    working = asyncio.ensure_future(app(scope, replay_body, sender))
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        # The watcher also ends when the response is complete.
        connected = working.done() or sender.complete
        if not connected:
            working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    finally:
        watching.cancel()
        working.cancel()
    if connected and not working.cancelled() and (error := working.exception()):
        raise error
    return connected


def cors_headers(settings: ServeSettings, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the CORS headers of the response to a request with these headers.

    Credentials are never allowed: a page must send a key itself and cannot use those of its visitors.
    """
    if not settings.cors_origins:
        return {}
    every = "*" in settings.cors_origins
    vary = {} if every else {"vary": "Origin"}  # a cache must not reuse the response for another origin
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if len(origins) != 1 or not (every or origins[0] in settings.cors_origins):
        return vary
    return {"access-control-allow-origin": "*" if every else origins[0], **vary, **_EXPOSED_HEADERS}


def preflight_headers(
    method: str, headers: Iterable[tuple[bytes, bytes]], allowed: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the headers of a CORS preflight response; None for other requests and for origins not allowed."""
    asks = method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)
    return dict(_PREFLIGHT_HEADERS) if asks and "access-control-allow-origin" in allowed else None


class RouteTemplates:
    """Path templates of an application, with parameter names in braces."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        paths = dict.fromkeys(each.path for each in iter_route_contexts(routes) if each.path is not None)
        self._fixed = {path for path in paths if "{" not in path}
        # `{name:path}` becomes `{name}`, as in the OpenAPI file.
        self._patterns = [compile_path(path)[:2] for path in paths if "{" in path]

    def match(self, path: str) -> str:
        if path in self._fixed:
            return path
        return next((template for pattern, template in self._patterns if pattern.match(path)), UNKNOWN_ROUTE)
