"""A server on a port of this machine, until it is told to stop."""

import errno
import ipaddress
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from attendo.errors import UsageError

try:
    import uvicorn
    from starlette.types import ASGIApp
except ModuleNotFoundError as error:
    raise UsageError(f"a server needs {error.name}: pip install 'attendo[serve]'") from None

_HEADER_BYTES = 32 * 1024  # beyond what the guard refuses with words, h11 closes the connection
_SECONDS_TO_END = 1  # for what is being answered when the server is stopped


@dataclass(frozen=True)
class Place:
    """Where a server listens."""

    socket: socket.socket
    address: str  # of its page


@contextmanager
def listening(host: str, port: int) -> Iterator[Place]:
    """A socket that is bound: only then is it sure that nobody else has the port."""
    kind, address = _resolved(host)
    taken = socket.socket(kind, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((address, port))
            taken.listen()  # while models are read, nobody else can take it
        except OSError as error:
            raise UsageError(_why(error, host, port)) from None
        shown = f"[{host}]" if ":" in host else host
        yield Place(taken, f"http://{shown}:{taken.getsockname()[1]}/")
    finally:
        taken.close()


def serve(app: ASGIApp, place: Place, browser: bool) -> None:
    """Until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    # A browser may take its time, or the terminal.
    opening = threading.Thread(target=webbrowser.open, args=(place.address,), daemon=True)
    server = _Server(config, opening if browser else None)
    with suppress(KeyboardInterrupt):  # it has ended by then
        server.run(sockets=[place.socket])


class _Server(uvicorn.Server):
    """Opens the page when it can be answered."""

    def __init__(self, config: uvicorn.Config, opening: threading.Thread | None) -> None:
        super().__init__(config)
        self._opening = opening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._opening is not None:
            self._opening.start()


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(f"--host {host} is no address of this machine: take 127.0.0.1, or leave it out") from None
    kind, address = found[0][0], str(found[0][4][0])
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        raise UsageError(f"--host {host} stands for every address: name the one that others reach this machine by")
    return kind, address


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken on {host}: choose another with --port, or any free one with --port 0"
    if error.errno == errno.EACCES:
        return f"port {port} is not for everybody: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine: take 127.0.0.1, or leave it out"
    return f"port {port} of {host} cannot be used: {error.strerror}; choose another with --port"
