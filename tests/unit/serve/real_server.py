"""A server on a port, for client libraries that need a real connection."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from attendo.serve.server import bind


@contextmanager
def serve_on_port(app: ASGIApp) -> Iterator[str]:
    """Serves the app and yields its address, without a trailing slash."""
    config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, log_level="warning")
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound.socket]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield bound.address.rstrip("/")
        finally:
            server.should_exit = True
            thread.join()
