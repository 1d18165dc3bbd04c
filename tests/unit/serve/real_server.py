"""A server on a port, for clients that will have nothing else."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from attendo.serve.server import bind


@contextmanager
def on_a_port(app: ASGIApp) -> Iterator[str]:
    """Its address, without a slash at the end."""
    config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, log_level="warning")
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place.socket]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield place.address.rstrip("/")
        finally:
            server.should_exit = True
            thread.join()
