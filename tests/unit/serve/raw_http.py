"""A server on a port as it is run, and clients that send whatever bytes they like."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from tiny import PATIENCE

from attendo.serve.http.connections import uvicorn_options
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.server import LISTEN_BACKLOG, bind

PROMISED = 11.0  # seconds in which everybody is answered, or their connection closed: held by the slow tests


@dataclass(frozen=True)
class Answer:
    """What came back, if anything, before the connection was closed."""

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
def served(app: RequestGuard) -> Iterator[int]:
    """The port. The lines that it writes go where those of the test go."""
    options = {**uvicorn_options(app.gateway.settings), "log_config": None}
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=1, **options))
    with bind("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place.socket]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                threading.Event().wait(0.005)
            place.socket.listen(LISTEN_BACKLOG)
            yield place.socket.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def connected(port: int, seconds: float = PATIENCE) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), seconds)


def exchanged(port: int, sent: bytes | Iterable[bytes], seconds: float = PATIENCE) -> Answer:
    """What is answered to these bytes, until the server closes; TimeoutError where it neither answers nor closes."""
    with connected(port, seconds) as client:
        try:
            for part in [sent] if isinstance(sent, bytes) else sent:
                client.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        return Answer(received(client))


def received(client: socket.socket) -> bytes:
    found = b""
    try:
        while part := client.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def request(
    path: str, body: bytes = b"", method: str = "POST", headers: Iterable[str] = (), kind: str = "application/json"
) -> bytes:
    """A request that is well-formed but for what is given; the connection is to be closed behind it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {kind}"]
    lines += [f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
