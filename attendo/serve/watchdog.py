"""Looks after the threads that compute: should one die or hang, the process ends, so that it is started again."""

import logging
import os
import threading
import time
from collections.abc import Callable

from attendo.errors import ModelError
from attendo.serve.office import Office

EXIT_CODE = 70  # an internal error, by sysexits.h
_LOOK_SECONDS = 0.25
_TELLING_SECONDS = 0.5  # for answers that say so
_log = logging.getLogger("attendo.serve")


class Watchdog:
    """A thread of its own: an event loop that is busy does not keep it from looking."""

    def __init__(self, office: Office, end: Callable[[int], None] = os._exit) -> None:
        """`end` leaves without waiting for anybody: a thread that hangs would be waited for without end."""
        self._office, self._end = office, end
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="attendo-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if (fault := self.fault()) is not None:
                _log.critical("%s: this process ends with %d, to be started again", fault, EXIT_CODE)
                time.sleep(_TELLING_SECONDS)
                self._end(EXIT_CODE)
                return

    def fault(self) -> ModelError | None:
        for served in self._office.shelf.all():
            if not served.batcher.ready_to_compute:
                return ModelError("worker_thread_died", name=served.name)
            if served.batcher.seconds_without_a_step > self._office.settings.hang_seconds:
                seconds = self._office.settings.hang_seconds
                return ModelError("worker_thread_hung", name=served.name, seconds=seconds)
        return None
