"""What every request passes before anything looks at it: names, sizes, time; and the headers of every answer."""

import asyncio
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attendo.serve.errors import Refusal
from attendo.serve.settings import ServeSettings

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


class Guard:
    """Reads the whole body itself, so that it can tell when a client leaves and stop the work then."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        answering = _with_headers(send)
        try:
            self._check_headers(scope["headers"])
            body = await asyncio.wait_for(self._body(receive), self._settings.body_seconds)
        except (Refusal, TimeoutError) as error:
            late = Refusal("body_too_slow", seconds=self._settings.body_seconds)
            refusal = error if isinstance(error, Refusal) else late
            await refusal.response()(scope, receive, answering)
            return
        if body is not None:
            await _while_there(self._app, scope, body, receive, answering)

    def _check_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        headers, settings = list(headers), self._settings
        if sum(len(name) + len(value) + 4 for name, value in headers) > settings.header_bytes:
            raise Refusal("headers_too_large", most=settings.header_bytes)
        named = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(named) != 1 or host_name(named[0]) not in settings.hosts:
            raise Refusal("bad_host", host=", ".join(named)[:100])
        for name, value in headers:
            text = value.decode("latin-1").strip().lower()
            if name == b"content-encoding" and text not in ("", "identity"):
                raise Refusal("bad_encoding", encoding=text[:40])
            if name == b"content-length" and (not text.isdecimal() or int(text[:20]) > settings.body_bytes):
                raise Refusal("body_too_large", most=settings.body_bytes)

    async def _body(self, receive: Receive) -> bytes | None:
        """None where the client left before it had sent all of it."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._settings.body_bytes:
                raise Refusal("body_too_large", most=self._settings.body_bytes)
            if not message.get("more_body", False):
                return bytes(body)


def host_name(host: str) -> str:
    """Without the port; an address of IPv6 without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


async def _while_there(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Runs the app until it has answered, or until nobody waits for the answer."""
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

    answering = asyncio.ensure_future(app(scope, replayed, send))
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    finally:
        watching.cancel()
        answering.cancel()
    if not answering.cancelled() and (error := answering.exception()):
        raise error


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending
