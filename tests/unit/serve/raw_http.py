"""A server on a port with its production options, and clients that send arbitrary bytes."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from tiny import PATIENCE

from attendo.serve.app import Application
from attendo.serve.http.connections import uvicorn_options
from attendo.serve.server import LISTEN_BACKLOG, bind

MAX_SECONDS = 11.0  # seconds within which the server responds or closes the connection; checked by the slow tests


@dataclass(frozen=True)
class RawResponse:
    """The bytes received before the connection was closed."""

    data: bytes

    @property
    def status(self) -> int | None:
        return int(self.data[9:12]) if self.data.startswith(b"HTTP/1.") else None

    @property
    def head(self) -> dict[str, str]:
        lines = self.data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def body(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[2]


@contextmanager
def serve_app(app: Application) -> Iterator[int]:
    """Serves the app and yields the port. Log records go to the handlers of the test."""
    options = {**uvicorn_options(app.gateway.settings), "log_config": None}
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=1, **options))
    with bind("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.socket]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                threading.Event().wait(0.005)
            bound.socket.listen(LISTEN_BACKLOG)
            yield bound.socket.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def connect(port: int, seconds: float = PATIENCE) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), seconds)


def exchange(port: int, payload: bytes | Iterable[bytes], seconds: float = PATIENCE) -> RawResponse:
    """Sends the bytes and reads until the server closes. TimeoutError if it neither responds nor closes."""
    with connect(port, seconds) as client:
        try:
            for part in [payload] if isinstance(payload, bytes) else payload:
                client.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has already rejected the request
        return RawResponse(receive_all(client))


def receive_all(client: socket.socket) -> bytes:
    data = b""
    try:
        while part := client.recv(65_536):
            data += part
    except ConnectionResetError:
        pass
    return data


def request(
    path: str,
    body: bytes = b"",
    method: str = "POST",
    headers: Iterable[str] = (),
    content_type: str = "application/json",
) -> bytes:
    """A well-formed request, except for the given parts. It asks the server to close the connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {content_type}"]
    lines += [f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
