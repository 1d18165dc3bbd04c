"""Those who wait for the same, and whether one more would wait for too long."""

import threading
import time

from attendo.serve.jobs import Job
from attendo.serve.pace import Pace

# Those who can all sit down when the next ones get up may wait for that: where answers take long, to turn away the
# second who comes would help nobody.
_OF_NEXT = 4  # times the seconds that others may wait


class Queue:
    """Of one model, from any thread. Jobs take themselves out when they have begun, or are over."""

    def __init__(self, seconds: float, next_ones: int) -> None:
        """`seconds` that one may have to wait, by how fast it goes; so many come next."""
        self.jobs: set[Job] = set()
        self._seconds, self._next_ones = seconds, next_ones
        self._pace, self._lock = Pace(), threading.Lock()

    @property
    def too_long(self) -> bool:
        """Whether somebody in a hurry is to be turned away."""
        waiting = len(self.jobs)
        patience = self._seconds * (_OF_NEXT if waiting < self._next_ones else 1)
        with self._lock:
            return self._pace.wait(time.monotonic(), waiting) > patience

    def add(self, job: Job) -> None:
        with self._lock:
            if self.jobs:  # else its turn may have come already
                self._pace.waiting(time.monotonic())
        job.wait_in(self.jobs)

    def answered(self, count: int) -> None:
        """So many of those who were here."""
        if count:
            with self._lock:
                self._pace.answered(time.monotonic(), count, others_wait=bool(self.jobs))
