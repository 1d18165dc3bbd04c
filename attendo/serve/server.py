"""A server on a port of this machine, until it is told to stop."""

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
    import fastapi  # noqa: F401  (whatever is missing is told before anything is read)
    import prometheus_client  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn
except ModuleNotFoundError as error:
    raise UsageError("serve_package_missing", package=error.name) from None

if TYPE_CHECKING:
    from attendo.serve.http.middleware import RequestGuard
    from attendo.serve.scheduling.health import Watchdog

_NOTICE_SECONDS = 0.5  # in which whoever asks /readyz hears of the end, before nobody can connect any more
_SHUTDOWN_ERROR_SECONDS = 1.0  # of the time to end, for those who must be told that it is over
_MIN_DRAIN_SECONDS = 1.0  # of it, for those who are being answered when nobody can connect any more
_FORCED_EXIT_SECONDS = 0.5  # that a second signal leaves
LISTEN_BACKLOG = 2048  # connections that wait to be taken in
_SWITCH_SECONDS = 0.00005
_SIGNAL_EXIT_OFFSET = 128  # added to the number of a signal, where not all were answered


@dataclass(frozen=True)
class BoundSocket:
    """Where a server listens."""

    socket: socket.socket
    address: str  # of its page


@contextmanager
def bind(host: str, port: int, allow_wildcard: bool = False) -> Iterator[BoundSocket]:
    """A socket that is bound: only then is it sure that nobody else has the port.

    `allow_wildcard`: also on all addresses of this machine at once.
    """
    with _open_socket(host, allow_wildcard) as (taken, address):
        try:
            taken.bind((address, port))
            taken.listen()  # while models are read, nobody else can take it
        except OSError as error:
            raise _explain(error, host, port) from None
        shown = f"[{host}]" if ":" in host else host
        yield BoundSocket(taken, f"http://{shown}:{taken.getsockname()[1]}/")


def check_bindable(host: str, port: int) -> None:
    """Raises `UsageError` where a server could not listen there. One that does so already is the one to be replaced."""
    with _open_socket(host, allow_wildcard=True) as (tried, address):
        try:
            tried.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _explain(error, host, port) from None


def serve(app: "RequestGuard", bound: BoundSocket, on_ready: Callable[[], None], quiet: bool = False) -> int:
    """Until Ctrl-C or SIGTERM: the exit code. `on_ready` is called when requests are answered; `quiet`: only of trouble.

    Every model answers once before anybody is listened to. Told to end, it says so (/readyz), stops listening once all
    documents are fetched or time is up, and answers whoever is there. Told twice, it ends at once.
    """
    from attendo.serve.http.connections import uvicorn_options
    from attendo.serve.scheduling.health import Watchdog

    # Each of the two threads lets go of the interpreter this soon. With Python's own 5 ms refusals under load took
    # seconds; with 0.5 ms a flood of requests halved what was computed, which asks for the interpreter with every step.
    sys.setswitchinterval(_SWITCH_SECONDS)
    options = uvicorn_options(app.gateway.settings)
    if quiet:
        options["log_config"]["loggers"]["attendo"]["level"] = "WARNING"
    config = uvicorn.Config(app, lifespan="off", **options)
    server = _Server(config, app, Watchdog(app.gateway), on_ready)
    with suppress(KeyboardInterrupt):  # it has ended by then
        server.run(sockets=[bound.socket])
    return server.exit_code


def freeze_gc() -> None:
    """What is there before the first request stays, and is never looked through again for what nobody needs any more.

    Python would do so every few hundred requests, with modules, models and all: for 0.15 to 0.4 s nobody is heard.
    """
    gc.collect()
    gc.freeze()


def open_browser(address: str) -> None:
    """In a browser, which may take its time, or the terminal."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


class _Server(uvicorn.Server):
    """Begins when all models are warm, and ends in order."""

    def __init__(
        self, config: uvicorn.Config, app: "RequestGuard", watchdog: "Watchdog", on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._gateway, self._watchdog, self._on_ready = app.gateway, watchdog, on_ready
        self._stop_listening_at: float | None = None  # listening, unless for documents
        self._shutdown_deadline = 0.0  # for everybody
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._gateway.warm_up()
        freeze_gc()
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(LISTEN_BACKLOG)  # asyncio has set it to as many as it takes in at once
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
        """As uvicorn's own, but a signal that was obeyed is not raised again: the exit code is ours to choose."""
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
        forced = threading.Timer(_FORCED_EXIT_SECONDS, os._exit, (self.exit_code,))  # whatever still hangs
        forced.daemon = True
        forced.start()

    def _is_done_listening(self) -> bool:
        now = time.monotonic()
        if self._stop_listening_at is None or now < self._stop_listening_at:
            return False
        return now >= self._shutdown_deadline - _MIN_DRAIN_SECONDS or not self._gateway.has_pending_results


@contextmanager
def _open_socket(host: str, allow_wildcard: bool) -> Iterator[tuple[socket.socket, str]]:
    """With the address to bind it to."""
    kind, address = _resolve(host, allow_wildcard)
    # Named as TCP, so that the event loop sends small answers at once instead of waiting for more to send.
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
