"""Binds a port, runs the server and shuts it down."""

import asyncio
import errno
import gc
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from attendo.errors import UsageError

try:
    import fastapi  # noqa: F401  (report a missing package before models are loaded)
    import prometheus_client  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn
except ModuleNotFoundError as error:
    raise UsageError("serve_package_missing", package=error.name) from None

if TYPE_CHECKING:
    from attendo.serve.app import Application
    from attendo.serve.scheduling.monitoring import Watchdog

_NOTICE_SECONDS = 0.5  # /readyz returns 503 for this long before the socket is closed
_SHUTDOWN_ERROR_SECONDS = 1.0  # part of `drain_seconds` for sending errors to unfinished requests
_MIN_DRAIN_SECONDS = 1.0  # part of `drain_seconds` for requests in flight after the socket is closed
_FORCED_EXIT_SECONDS = 0.5  # until the process exits after a second signal
LISTEN_BACKLOG = 2048  # connections that wait to be accepted
_SWITCH_SECONDS = 0.00005
_SIGNAL_EXIT_OFFSET = 128  # exit code is 128 + signal number if requests were aborted


@dataclass(frozen=True)
class BoundSocket:
    """Listening socket of a server."""

    socket: socket.socket
    address: str  # URL of the page


@contextmanager
def bind(host: str, port: int, allow_wildcard: bool = False) -> Iterator[BoundSocket]:
    """Bind and listen before models are loaded, so that no other process takes the port.

    `allow_wildcard` allows an address such as 0.0.0.0, which binds all interfaces.
    """
    with _open_socket(host, allow_wildcard) as (taken, address):
        try:
            taken.bind((address, port))
            taken.listen()
        except OSError as error:
            raise _explain(error, host, port) from None
        shown = f"[{host}]" if ":" in host else host
        yield BoundSocket(taken, f"http://{shown}:{taken.getsockname()[1]}/")


def check_bindable(host: str, port: int) -> None:
    """Raise `UsageError` if a server cannot bind this address. A port in use is accepted: that server is replaced."""
    with _open_socket(host, allow_wildcard=True) as (tried, address):
        try:
            tried.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _explain(error, host, port) from None


def serve(app: "Application", bound: BoundSocket, on_ready: Callable[[], None], quiet: bool = False) -> int:
    """Run until Ctrl-C or SIGTERM and return the exit code. `quiet` logs only warnings and errors.

    Every model generates once before connections are accepted; `on_ready` is called after that. After a signal,
    /readyz returns 503. The socket is closed once all documents are fetched or time is up. Requests in flight are
    finished. A second signal ends the process at once.
    """
    from attendo.serve.http.connections import uvicorn_options
    from attendo.serve.scheduling.monitoring import Watchdog

    # Interval of switching the GIL between event loop and worker. With Python's default of 5 ms rejections under load
    # took seconds. With 0.5 ms a flood of requests halved the decoding throughput, as every step needs the GIL.
    sys.setswitchinterval(_SWITCH_SECONDS)
    options = uvicorn_options(app.gateway.settings)
    if quiet:
        options["log_config"]["loggers"]["attendo"]["level"] = "WARNING"
    config = uvicorn.Config(app, lifespan="off", **options)
    server = _Server(config, app, Watchdog(app.gateway), on_ready)
    with suppress(KeyboardInterrupt):  # the server has shut down by then
        server.run(sockets=[bound.socket])
    return server.exit_code


def freeze_gc() -> None:
    """Exclude start-up objects from garbage collection.

    A full collection would run every few hundred requests and block the event loop for 0.15 to 0.4 s.
    """
    gc.collect()
    gc.freeze()


def open_browser(address: str) -> None:
    """Open the address in a browser, in a thread: starting a browser may block."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


class _Server(uvicorn.Server):
    """uvicorn server that starts after the warm-up of all models and drains requests at shutdown."""

    def __init__(
        self, config: uvicorn.Config, app: "Application", watchdog: "Watchdog", on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._gateway, self._watchdog, self._on_ready = app.gateway, watchdog, on_ready
        self._stop_listening_at: float | None = None  # later if documents are pending
        self._shutdown_deadline = 0.0  # for all requests and documents
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._gateway.warm_up()
        freeze_gc()
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(LISTEN_BACKLOG)  # asyncio has set it to the smaller accept backlog
        self._watchdog.start()
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        await super().on_tick(counter)
        return self.should_exit or self._is_done_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        left = max(_MIN_DRAIN_SECONDS, self._shutdown_deadline - time.monotonic())
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]
        await super().shutdown(sockets)
        if not self.force_exit:
            draining = [each.worker.drain() for each in self._gateway.registry.all()]
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*draining), _SHUTDOWN_ERROR_SECONDS)
        self._watchdog.stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but do not raise them again, so that `exit_code` is returned."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stop_listening_at is None:
            self._gateway.draining = True
            now = time.monotonic()
            self._stop_listening_at = now + (_NOTICE_SECONDS if sig == signal.SIGTERM else 0)
            self._shutdown_deadline = now + self._gateway.settings.drain_seconds - _SHUTDOWN_ERROR_SECONDS
            return
        self.exit_code = _SIGNAL_EXIT_OFFSET + sig
        self.should_exit = self.force_exit = True
        forced = threading.Timer(_FORCED_EXIT_SECONDS, os._exit, (self.exit_code,))  # even if a thread hangs
        forced.daemon = True
        forced.start()

    def _is_done_listening(self) -> bool:
        now = time.monotonic()
        if self._stop_listening_at is None or now < self._stop_listening_at:
            return False
        return now >= self._shutdown_deadline - _MIN_DRAIN_SECONDS or not self._gateway.has_pending_results


@contextmanager
def _open_socket(host: str, allow_wildcard: bool) -> Iterator[tuple[socket.socket, str]]:
    """Yield a socket and the address to bind it to."""
    kind, address = _resolve(host, allow_wildcard)
    # With IPPROTO_TCP given, asyncio sets TCP_NODELAY, which sends small responses at once.
    with socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield made, address


def _resolve(host: str, allow_wildcard: bool) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError("host_not_local", host=host) from None
    kind, address = found[0][0], str(found[0][4][0])
    if not allow_wildcard and ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        raise UsageError("host_is_wildcard_address", host=host)
    return kind, address


def _explain(error: OSError, host: str, port: int) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError("port_in_use", port=port, host=host)
    if error.errno == errno.EACCES:
        return UsageError("port_permission_denied", port=port)
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError("host_not_local", host=host)
    return UsageError("port_unusable", port=port, host=host, reason=error.strerror)
