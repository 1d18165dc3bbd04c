"""A request on its way through a batcher: what is asked, until when, and who hears what becomes of it."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attendo.errors import AttendoError
from attendo.serve.http.access_log import where
from attendo.serve.http.errors import Refusal

_log = logging.getLogger("attendo.serve")


@dataclass(frozen=True)
class Texts:
    """To be answered, all of them or, streamed, a single one; options as of `TextModel.generate`."""

    texts: Sequence[str]
    options: Mapping[str, Any]
    streamed: bool = False


@dataclass(frozen=True)
class Work:
    """Anything else that needs the model: what the iterator gives is told item by item."""

    begin: Callable[[], Iterator[Any]]


@dataclass(frozen=True)
class Told:
    """Something new, and more to come."""

    item: Any


@dataclass(frozen=True)
class Finished:
    """`value` is the answer, where it was not told in items."""

    value: Any = None


@dataclass(frozen=True)
class Failed:
    error: Exception


Event = Told | Finished | Failed


class Job:
    """`heard` is called in the thread that computes, and must return at once. The last event ends the job."""

    def __init__(self, asked: Texts | Work, heard: Callable[[Event], None], deadline: float | None = None) -> None:
        self.asked, self.deadline = asked, deadline
        self._heard, self._queue = heard, set[Job]()
        self.patient = isinstance(asked, Work)  # is not turned away for those who wait
        self.tokens = 0  # that it may take, sources and answers, of every row
        self.entered, self._begun = time.monotonic(), 0.0
        self.over = False
        self._left = False

    @property
    def begun(self) -> bool:
        return self._begun > 0

    @property
    def since(self) -> float:
        """When it began."""
        return self._begun

    def wait_in(self, queue: "set[Job]") -> None:
        """And nowhere else. It takes itself out when it has begun, or is over: how many wait is asked all the time."""
        self._queue.discard(self)
        self._queue = queue
        queue.add(self)
        if self._left:  # meanwhile
            queue.discard(self)

    def begin(self) -> None:
        """Something is being computed for it."""
        self._begun = self._begun or time.monotonic()
        self._queue.discard(self)

    @property
    def seconds(self) -> tuple[float, float]:
        """That it waited, and that it has been computed for until now."""
        now = time.monotonic()
        begun = self._begun or now
        return begun - self.entered, now - begun

    def leave(self) -> None:
        """Nobody listens any more: from any thread, seen before the next step."""
        self._left = True
        self._queue.discard(self)

    @property
    def listened_to(self) -> bool:
        return not self._left and not self.over

    def lost(self, now: float) -> bool:
        """Whether its time is over, or nobody listens; whoever still does is told."""
        if self._left:
            self.over = True
        elif self.deadline is not None and now >= self.deadline:
            self.fail(Refusal("too_late"))
        return self.over

    def tell(self, item: Any) -> None:
        self._say(Told(item))

    def finish(self, value: Any = None) -> None:
        self._end(Finished(value))

    def fail(self, error: Exception) -> None:
        """What is nobody's fault but ours is written down, without a word of any text."""
        if not isinstance(error, AttendoError | Refusal):
            _log.error("a request failed: %s", where(error))
            error = Refusal("failed")
        self._end(Failed(error))

    def _end(self, event: Event) -> None:
        self._say(event)
        self.over = True
        self._queue.discard(self)

    def _say(self, event: Event) -> None:
        if self.listened_to:
            self._heard(event)
