"""A request on its way through a batcher: what is asked, until when, and who hears what becomes of it."""

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
    """To be answered, all of them or, streamed, a single one; options as of `TextModel.generate`."""

    texts: Sequence[str]
    options: Mapping[str, Any]
    streamed: bool = False


@dataclass(frozen=True)
class CallableJob:
    """Anything else that needs the model: what the iterator gives is told item by item."""

    begin: Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Chunk:
    """Something new, and more to come."""

    item: Any


@dataclass(frozen=True)
class JobFinished:
    """`value` is the answer, where it was not told in items."""

    value: Any = None


@dataclass(frozen=True)
class JobFailed:
    error: Exception


JobEvent = Chunk | JobFinished | JobFailed


class ScheduledJob:
    """`on_event` is called in the thread that computes, and must return at once. The last event ends the job."""

    def __init__(
        self, spec: GenerateJob | CallableJob, on_event: Callable[[JobEvent], None], deadline: float | None = None
    ) -> None:
        self.spec, self.deadline = spec, deadline
        self._on_event, self._queue = on_event, set[ScheduledJob]()
        self.can_wait = isinstance(spec, CallableJob)  # is not turned away for those who wait
        self.token_cost = 0  # that it may take, sources and answers, of every row
        self.queued_at, self._started_at = time.monotonic(), 0.0
        self.finished = False
        self._cancelled = False

    @property
    def has_started(self) -> bool:
        return self._started_at > 0

    @property
    def started_at(self) -> float:
        """When it began."""
        return self._started_at

    def wait_in(self, queue: "set[ScheduledJob]") -> None:
        """And nowhere else. It takes itself out when it has begun, or is over: how many wait is asked all the time."""
        self._queue.discard(self)
        self._queue = queue
        queue.add(self)
        if self._cancelled:  # meanwhile
            queue.discard(self)

    def start(self) -> None:
        """Something is being computed for it."""
        self._started_at = self._started_at or time.monotonic()
        self._queue.discard(self)

    @property
    def wait_and_run_seconds(self) -> tuple[float, float]:
        """That it waited, and that it has been computed for until now."""
        now = time.monotonic()
        begun = self._started_at or now
        return begun - self.queued_at, now - begun

    def cancel(self) -> None:
        """Nobody listens any more: from any thread, seen before the next step."""
        self._cancelled = True
        self._queue.discard(self)

    @property
    def is_active(self) -> bool:
        return not self._cancelled and not self.finished

    def check_expired(self, now: float) -> bool:
        """Whether its time is over, or nobody listens; whoever still does is told."""
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
        """What is nobody's fault but ours is written down, without a word of any text."""
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
