"""A minimal HTTP/1.1 client for load tests, with persistent connections and streamed responses."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from attendo.errors import UsageError

try:
    import h11
except ModuleNotFoundError as error:
    raise UsageError("load_client_package_missing", package=error.name) from None

_READ_BYTES = 65_536  # maximum bytes per read


@dataclass(frozen=True)
class ResponseListener:
    """Callbacks during a request."""

    on_sent: Callable[[], None] = lambda: None  # after the whole request was sent
    on_data: Callable[[bytes], None] = lambda part: None  # for each part of the response body


@dataclass(frozen=True)
class HttpRequest:
    """A request: GET without a body, POST with one."""

    path: str
    body: bytes | None = None


@dataclass(frozen=True)
class HttpResponse:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClientError(ConnectionError):
    """The connection failed or was closed, or the server sent invalid HTTP."""


@dataclass(frozen=True)
class Address:
    """Host, port and path prefix of a server. `name` is the Host header."""

    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> "Address":
        parts = urlsplit(url if "//" in url else f"//{url}")
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme not in ("", "http") or not parts.hostname or not 0 < port < 65536:
            raise UsageError("server_address_invalid", url=url)
        return cls(parts.hostname, port, parts.path.rstrip("/"))

    @property
    def name(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port}"


class HttpClient:
    """Connections to one server. Idle connections are reused; the number of connections is not limited."""

    def __init__(self, address: Address, headers: Mapping[str, str] | None = None) -> None:
        self._address, self._headers = address, dict(headers or {})
        self._idle: list[_Connection] = []

    async def send(self, request: HttpRequest, listener: ResponseListener | None = None) -> HttpResponse:
        """Send a request and return the whole response. Cancelling closes the connection."""
        listener = listener or ResponseListener()
        idle = self._take_idle()
        if idle is not None:
            try:
                return await self._send_on(idle, request, listener)
            except HttpClientError:
                if idle.received_any:
                    raise
                # The server closed the idle connection before the request; retry on a new one.
        return await self._send_on(await self._open(), request, listener)

    async def close(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # let the transports close

    async def _send_on(
        self, connection: "_Connection", request: HttpRequest, listener: ResponseListener
    ) -> HttpResponse:
        try:
            response = await connection.exchange(self._to_h11(request), request.body, listener)
        except BaseException:
            connection.abort()
            raise
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.abort()
        return response

    def _take_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                return connection
            connection.abort()
        return None

    async def _open(self) -> "_Connection":
        try:
            reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        except OSError as error:
            raise HttpClientError(f"{self._address.name} cannot be reached: {error.strerror or error}") from None
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Connection(reader, writer)

    def _to_h11(self, request: HttpRequest) -> h11.Request:
        given = {"Host": self._address.name, **self._headers}
        if request.body is not None:
            given = {"Content-Type": "application/json", **given, "Content-Length": str(len(request.body))}
        method = "GET" if request.body is None else "POST"
        target = (self._address.path + request.path).encode()
        return h11.Request(method=method, target=target, headers=list(given.items()))


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = h11.Connection(h11.CLIENT)
        self.received_any = False

    @property
    def alive(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    @property
    def reusable(self) -> bool:
        """True if both sides have finished their messages and neither closes the connection."""
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return self.alive

    async def exchange(self, request: h11.Request, body: bytes | None, listener: ResponseListener) -> HttpResponse:
        self.received_any = False
        sent = [self._protocol.send(each) for each in (request, *([h11.Data(data=body)] if body else ()))]
        sent.append(self._protocol.send(h11.EndOfMessage()))
        try:
            self._writer.write(b"".join(each for each in sent if each))
            await self._writer.drain()
            listener.on_sent()
            return await self._read_response(listener)
        except (OSError, h11.RemoteProtocolError) as error:
            raise HttpClientError(str(error)) from None

    async def _read_response(self, listener: ResponseListener) -> HttpResponse:
        response: h11.Response | None = None
        parts: list[bytes] = []
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                listener.on_data(parts[-1])
        assert response is not None  # h11 emits EndOfMessage only after a Response
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in response.headers}
        return HttpResponse(response.status_code, headers, b"".join(parts))

    async def _next_event(self) -> Any:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_READ_BYTES)
            self.received_any |= bool(data)
            self._protocol.receive_data(data)  # empty data is the end; in the middle of a response h11 raises
        if isinstance(event, h11.ConnectionClosed):
            raise HttpClientError("the server closed the connection without an answer")
        return event

    def abort(self) -> None:
        """Close the connection at once, as a client that gives up does."""
        self._writer.transport.abort()
