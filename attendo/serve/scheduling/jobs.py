"""Jobs of a model worker and the events that they emit."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attendo.errors import AttendoError
from attendo.serve.http.access_log import error_location
from attendo.serve.http.errors import ApiError

_log = logging.getLogger("attendo.serve")


@dataclass(frozen=True)
class GenerateJob:
    """Texts to generate from, a single one if streamed. Options are those of `TextModel.generate`."""

    texts: Sequence[str]
    options: Mapping[str, Any]
    streamed: bool = False


@dataclass(frozen=True)
class CallableJob:
    """Any other work that needs the model. Each item of the iterator is sent as a chunk."""

    begin: Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Chunk:
    """An item of a job that is not finished."""

    item: Any


@dataclass(frozen=True)
class JobFinished:
    """Last event of a successful job; `value` is the result unless it was sent in chunks."""

    value: Any = None


@dataclass(frozen=True)
class JobFailed:
    error: Exception


JobEvent = Chunk | JobFinished | JobFailed


class ScheduledJob:
    """A job with its deadline and state. `on_event` is called in a worker thread and must return at once."""

    def __init__(
        self, spec: GenerateJob | CallableJob, on_event: Callable[[JobEvent], None], deadline: float | None = None
    ) -> None:
        self.spec, self.deadline = spec, deadline
        self._on_event, self._queue = on_event, set[ScheduledJob]()
        self.can_wait = isinstance(spec, CallableJob)  # is not rejected because of the queue
        self.token_cost = 0  # maximum source and output tokens, times rows
        self.queued_at = time.monotonic()
        self.started_at = 0.0  # as `time.monotonic`; 0 before the start
        self.finished = False
        self._cancelled = False

    @property
    def has_started(self) -> bool:
        return self.started_at > 0

    def wait_in(self, queue: "set[ScheduledJob]") -> None:
        """Move the job to this queue. It removes itself when it starts or ends, so the queue length is exact."""
        self._queue.discard(self)
        self._queue = queue
        queue.add(self)
        if self._cancelled:  # in the meantime, from another thread
            queue.discard(self)

    def start(self) -> None:
        """Mark the job as started."""
        self.started_at = self.started_at or time.monotonic()
        self._queue.discard(self)

    @property
    def wait_and_run_seconds(self) -> tuple[float, float]:
        """Seconds in the queue, and seconds since the start."""
        now = time.monotonic()
        start = self.started_at or now
        return start - self.queued_at, now - start

    def cancel(self) -> None:
        """Cancel the job before the next step; thread-safe."""
        self._cancelled = True
        self._queue.discard(self)

    @property
    def is_active(self) -> bool:
        return not self._cancelled and not self.finished

    def check_expired(self, now: float) -> bool:
        """Return True if the job is over. A job past its deadline fails with `too_late`."""
        if self._cancelled:
            self.finished = True
        elif self.deadline is not None and now >= self.deadline:
            self.fail(ApiError("too_late"))
        return self.finished

    def send_chunk(self, item: Any) -> None:
        self._emit(Chunk(item))

    def finish(self, value: Any = None) -> None:
        self._end(JobFinished(value))

    def fail(self, error: Exception) -> None:
        """End the job with an error. Internal errors are logged by location only, without any text."""
        if not isinstance(error, AttendoError | ApiError):
            _log.error("a request failed: %s", error_location(error))
            error = ApiError("failed")
        self._end(JobFailed(error))

    def _end(self, event: JobEvent) -> None:
        self._emit(event)
        self.finished = True
        self._queue.discard(self)

    def _emit(self, event: JobEvent) -> None:
        if self.is_active:
            self._on_event(event)
