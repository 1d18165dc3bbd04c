"""ASGI middleware: host, size and time limits, security and CORS headers, access log."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi.routing import iter_route_contexts
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attendo.serve.http.access_log import CURRENT, METHODS, QUIET, Entry, request_id
from attendo.serve.http.errors import Refusal, refusal_of, refused
from attendo.serve.http.metrics import LEFT
from attendo.serve.settings import ServeSettings

if TYPE_CHECKING:
    from attendo.serve.scheduling.gateway import Office

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
DOCUMENTS = ("/v2/document", "/translate_file")  # whose bodies may be as large as a document
# Where programs ask for texts. Whether one of them is to be refused while nobody has room is known before its body is
# looked at, which is what a refusal costs most of: a flood of them must not hold up those who are being answered.
ASKING = (
    "/translate",
    "/v2/translate",
    "/v1/chat/completions",
    "/v1/completions",
    "/hf/translation",
    "/hf/summarization",
    "/hf/models/{name}",
    "/api/v1/generate",
)
# Whoever has brought a document comes for it also while the server ends: the next one knows nothing of it.
FETCHING = ("/v2/document/{document_id}", "/v2/document/{document_id}/result")
# Whoever watches a server asks it by an address that nobody named; nothing is told that another page could use.
PROBES = ("/livez", "/readyz", "/health")
_READ_OFF = 8  # times the largest body: so much of one that is refused is read, for its client to hear why
_READ_OFF_SECONDS = 2.0
# Authorization must be named: the star leaves it out.
_ALLOWED = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "Authorization, *",
    "access-control-max-age": "600",
}
_SHOWN = {"access-control-expose-headers": "X-Request-ID, Retry-After"}
UNKNOWN = "none"


class Guard:
    """Reads the whole body itself, so that it can tell when a client leaves and stop the work then.

    Everything about a request that is counted or written down is so here, once, whatever became of it.
    """

    def __init__(self, app: ASGIApp, office: "Office") -> None:
        self.app, self.office = app, office
        self._settings, self._tally = office.settings, office.tally
        self._templates = Templates(getattr(app, "routes", ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        entry = Entry(request_id(scope["headers"]), method, self._templates.of(scope["path"]))
        answering = _Answering(send, {**HEADERS, "x-request-id": entry.request_id})
        begin, token = time.monotonic(), CURRENT.set(entry)
        try:
            with self._tally.in_flight():
                await self._answer(scope, receive, answering, entry)
        finally:
            entry.status = entry.status or answering.status
            entry.seconds = time.monotonic() - begin
            self._count(entry)
            CURRENT.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, answering: "_Answering", entry: Entry) -> None:
        """Whatever goes wrong, somebody who waits is answered."""
        try:
            there = await self._passed(scope, receive, answering, entry.route)
            entry.status = 0 if there else LEFT
        except asyncio.CancelledError:  # the server ends, and does not wait for this one
            await _refuse(Refusal("draining"), scope, receive, answering)
            raise
        except Exception as error:
            # What came from the application has been answered and written down; this is for all else.
            refusal = Refusal("failed") if entry.refused else refusal_of(error)
            await _refuse(refusal, scope, receive, answering)

    async def _passed(self, scope: Scope, receive: Receive, answering: "_Answering", route: str) -> bool:
        """Whether the client stayed until it was answered."""
        settings = self._settings
        most = settings.documents_bytes if scope["path"] in DOCUMENTS else settings.body_bytes
        incoming, allowed = _Body(receive, most), cors_headers(settings, scope["headers"])
        answering.headers.update(allowed)
        try:
            self._check_headers(scope, most)
            if self.office.draining and scope["path"] not in QUIET and route not in FETCHING:
                raise Refusal("draining")
            if (told := preflight(scope["method"], scope["headers"], allowed)) is not None:
                await Response(status_code=204, headers=told)(scope, receive, answering)
                return True
            async with asyncio.timeout(settings.body_seconds):
                body = await incoming.read()
        except TimeoutError:
            await _refuse(Refusal("body_too_slow", seconds=settings.body_seconds), scope, receive, answering)
            return True
        except Refusal as refusal:
            if not any(name == b"expect" for name, _ in scope["headers"]):  # else it has sent nothing, and waits
                await incoming.read_off(min(_READ_OFF_SECONDS, settings.body_seconds))
            await _refuse(refusal, scope, receive, answering)
            return True
        if body is not None and route in ASKING and scope["method"] == "POST" and self.office.full:
            busy = Refusal("busy", waiting=self.office.waiting)
            await refused(busy, scope["path"])(scope, receive, answering)
            return True
        return body is not None and await _while_there(self.app, scope, body, receive, answering)

    def _check_headers(self, scope: Scope, most: int) -> None:
        headers, settings = list(scope["headers"]), self._settings
        if sum(len(name) + len(value) + 4 for name, value in headers) > settings.header_bytes:
            raise Refusal("headers_too_large", most=settings.header_bytes)
        named = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if scope["path"] not in PROBES and (len(named) != 1 or host_name(named[0]) not in settings.hosts):
            raise Refusal("bad_host", host=", ".join(named)[:100])
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
            # Two servers in a row may each believe another one, and take the end of a body for a request.
            raise Refusal("two_lengths")
        for name, value in headers:
            text = value.decode("latin-1").strip().lower()
            if name == b"content-encoding" and text not in ("", "identity"):
                raise Refusal("bad_encoding", encoding=text[:40])
            if name == b"content-length" and (not text.isdecimal() or int(text[:20]) > most):
                raise Refusal("body_too_large", most=most)

    def _count(self, entry: Entry) -> None:
        self._tally.request(entry.route, entry.status, entry.seconds)
        if entry.status == LEFT:
            self._tally.cancelled()
        elif entry.refused:
            self._tally.rejected(entry.refused)
        entry.write()


class _Answering:
    """Sends, with headers of its own, and remembers how far it has come."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send, self.headers = send, dict(headers)
        self.status, self.complete = 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
            headers = [*message.get("headers", ()), *(each for each in more if each[0] not in given)]
            message = {**message, "headers": headers}
        await self._send(message)
        if message["type"] != "http.response.start" and not message.get("more_body", False):
            self.complete = True
        elif "body" in message:
            await asyncio.sleep(0)  # whoever does nothing but send would keep the watch from seeing that nobody reads


class _Body:
    """What a client sends behind its headers: kept up to a limit, and beyond it only read."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._ended = False

    async def read(self) -> bytes | None:
        """None where the client left before it had sent all of it."""
        body = bytearray()
        while not self._ended:
            part = await self._part()
            if part is None:
                return None
            body += part
            if len(body) > self._most:
                raise Refusal("body_too_large", most=self._most)
        return bytes(body)

    async def read_off(self, seconds: float) -> None:
        """What comes of a body that is refused: a client that is cut off while it sends does not read the answer."""
        try:
            async with asyncio.timeout(seconds):
                left = self._most * _READ_OFF
                while left > 0 and not self._ended:
                    left -= len(await self._part() or b"")
        except TimeoutError:
            return

    async def _part(self) -> bytes | None:
        message = await self._receive()
        left = message["type"] == "http.disconnect"
        self._ended = left or not message.get("more_body", False)
        return None if left else message.get("body", b"")


def host_name(host: str) -> str:
    """Without the port; an address of IPv6 without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, answering: _Answering) -> None:
    """Unless something was answered already. What is left of the request is not read, so nothing can follow it."""
    if answering.status:
        return
    response = refused(refusal, scope["path"])
    response.headers["connection"] = "close"
    await response(scope, receive, answering)


async def _while_there(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, answering: _Answering) -> bool:
    """Runs the app until it has answered, or until nobody waits for the answer: then it is False."""
    left, pending = asyncio.Event(), [body]

    async def replayed() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    working = asyncio.ensure_future(app(scope, replayed, answering))
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        # An answer that is complete ends the watch too.
        there = working.done() or answering.complete
        if not there:
            working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    finally:
        watching.cancel()
        working.cancel()
    if there and not working.cancelled() and (error := working.exception()):
        raise error
    return there


def cors_headers(settings: ServeSettings, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """For the answer to a request with these headers.

    Credentials are never allowed: keys are sent by whoever knows them, so no page can use those of its visitors.
    """
    if not settings.cors_origins:
        return {}
    every = "*" in settings.cors_origins
    vary = {} if every else {"vary": "Origin"}  # lest a cache hand the answer for one page to another
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if len(origins) != 1 or not (every or origins[0] in settings.cors_origins):
        return vary
    return {"access-control-allow-origin": "*" if every else origins[0], **vary, **_SHOWN}


def preflight(method: str, headers: Iterable[tuple[bytes, bytes]], allowed: Mapping[str, str]) -> dict[str, str] | None:
    """What a browser that asks first is told; None where this is no such request, or nothing is allowed."""
    asks = method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)
    return dict(_ALLOWED) if asks and "access-control-allow-origin" in allowed else None


class Templates:
    """The paths of an application, with names in braces for what differs."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        paths = dict.fromkeys(each.path for each in iter_route_contexts(routes) if each.path is not None)
        self._fixed = {path for path in paths if "{" not in path}
        # With `{name:path}` written as `{name}`, as the description of the API has it.
        self._others = [compile_path(path)[:2] for path in paths if "{" in path]

    def of(self, path: str) -> str:
        if path in self._fixed:
            return path
        return next((template for pattern, template in self._others if pattern.match(path)), UNKNOWN)
