"""Admission queues: reject a request if its estimated wait is too long."""

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from attendo.serve.scheduling.jobs import ScheduledJob

# Those who can all sit down when the next ones get up may wait for that: where answers take long, to turn away the
# second who comes would help nobody.
_NEXT_BATCH_WAIT_FACTOR = 4  # times the seconds that others may wait
_MAX_DURATIONS = 64  # answers that tell how long one takes
_MAX_DURATION_AGE_SECONDS = 60.0  # for which they do: those who come next may ask for something else
_MAX_WAIT_FACTOR = (
    4  # times the seconds that may be waited for in any case: the most there may be, however long answers take
)
_MIN_OBSERVED_SECONDS = 2.0  # of waiting, before anything is believed: those who end first may be few of many who began
_DECAY_SECONDS = 10.0  # of waiting; what came before counts for less and less
_MAX_RATE_AGE_SECONDS = 60.0  # for which what was seen is believed: those who come next may ask for something else


class ExclusiveJobQueue:
    """Of one model, from any thread. Jobs take themselves out when they have begun, or are over."""

    def __init__(self, max_wait: float, next_batch_size: int) -> None:
        """`max_wait` that one may have to wait, by how fast it goes; so many come next."""
        self.jobs: set[ScheduledJob] = set()
        self._max_wait, self._next_batch_size = max_wait, next_batch_size
        self._estimator, self._lock = WaitEstimator(), threading.Lock()

    @property
    def is_overloaded(self) -> bool:
        """Whether somebody in a hurry is to be turned away."""
        waiting = len(self.jobs)
        patience = self._max_wait * (_NEXT_BATCH_WAIT_FACTOR if waiting < self._next_batch_size else 1)
        with self._lock:
            return self._estimator.estimate_wait(time.monotonic(), waiting) > patience

    def add(self, job: ScheduledJob) -> None:
        with self._lock:
            if self.jobs:  # else its turn may have come already
                self._estimator.start_waiting(time.monotonic())
        job.wait_in(self.jobs)

    def record_finished(self, count: int) -> None:
        """So many of those who were here."""
        if count:
            with self._lock:
                self._estimator.record_finished(time.monotonic(), count, others_wait=bool(self.jobs))


class AdmissionQueue:
    """Of one model, from any thread. Jobs take themselves out when they have begun, or are over.

    Sentences that began together end together, and seats are free many at once and then none for a while. So the wait
    is that until the seat is free which would be theirs: by how long answers take, and since when each has been sat on.
    """

    def __init__(self, max_wait: float, free_slots: Callable[[], int]) -> None:
        """`max_wait` that may be waited for in any case. Where answers take longer, so may the wait be, and half as long
        on the whole: whoever is let in is to be answered in about twice the time of somebody who need not wait.

        `free_slots` tells how many seats there are for whoever comes now.
        """
        self.jobs: set[ScheduledJob] = set()
        self._max_wait, self._free_slots = max_wait, free_slots
        self._running: list[ScheduledJob] = []  # the longest first
        self._durations: deque[float] = deque(maxlen=_MAX_DURATIONS)
        self._last_finished = float("-inf")

    @property
    def is_overloaded(self) -> bool:
        """Whether somebody in a hurry is to be turned away."""
        now, free, waiting = time.monotonic(), self._free_slots(), len(self.jobs)
        since = [job.started_at for job in self._running if not job.finished]
        since += [now] * min(free, waiting)  # those who are about to sit down
        ahead = waiting - free
        if ahead < 0 or not since:
            return False
        answer = self._mean_duration(now, since[0])
        rounds, seat = divmod(ahead, len(since))
        until_free = rounds * answer + max(0.0, answer - (now - since[seat]))
        on_the_whole = ahead / len(since) * answer  # also where many sit for longer than an answer takes
        return until_free > self._bound_wait(answer) or on_the_whole > self._bound_wait(answer / 2)

    def add(self, job: ScheduledJob) -> None:
        job.wait_in(self.jobs)

    def record_finished(self, jobs: Iterable[ScheduledJob]) -> None:
        """All of those who sat here."""
        if took := [job.wait_and_run_seconds[1] for job in jobs]:
            self._discard_stale(time.monotonic())
            self._durations.extend(took)
            self._last_finished = time.monotonic()

    def set_running(self, jobs: Iterable[ScheduledJob]) -> None:
        """Those who do now."""
        self._running = sorted((job for job in jobs if job.has_started), key=lambda job: job.started_at)

    def _bound_wait(self, seconds: float) -> float:
        return min(_MAX_WAIT_FACTOR * self._max_wait, max(self._max_wait, seconds))

    def _mean_duration(self, now: float, oldest_start: float) -> float:
        """What one takes; where none is known, as much as the longest has taken until now."""
        took = [*self._durations] if now - self._last_finished <= _MAX_DURATION_AGE_SECONDS else []
        return statistics.fmean(took) if took else now - oldest_start

    def _discard_stale(self, now: float) -> None:
        if now - self._last_finished > _MAX_DURATION_AGE_SECONDS:
            self._durations.clear()


class WaitEstimator:
    """Moments are those of `time.monotonic`. Only the time counts in which somebody waited, and what was answered then.

    Sentences that began together end together, so answers come many at once and then none for a while: seconds and
    answers are summed up apart, or a moment after many of them everybody would seem to have no wait at all.
    """

    def __init__(self) -> None:
        self._seconds, self._num_finished = 0.0, 0.0  # each the less, the longer ago
        self._last, self._busy = float("-inf"), False

    def start_waiting(self, now: float) -> None:
        """Somebody waits from now on, if nobody did before."""
        self._discard_stale(now)
        if not self._busy:
            self._last, self._busy = now, True

    def record_finished(self, now: float, count: int, others_wait: bool) -> None:
        """So many at once: with only the first of them counted, all others would seem to take as long."""
        self._discard_stale(now)
        if self._busy and others_wait:  # all the while, or nobody had to
            passed = now - self._last
            kept = math.exp(-passed / _DECAY_SECONDS)
            self._seconds, self._num_finished = self._seconds * kept + passed, self._num_finished * kept + count
        self._last, self._busy = now, others_wait

    def estimate_wait(self, now: float, ahead: int) -> float:
        """Seconds for somebody behind so many others; none where nobody knows."""
        known = self._seconds > _MIN_OBSERVED_SECONDS and now - self._last <= _MAX_RATE_AGE_SECONDS
        return ahead * self._seconds / self._num_finished if known else 0.0

    def _discard_stale(self, now: float) -> None:
        if now - self._last > _MAX_RATE_AGE_SECONDS:
            self._seconds, self._num_finished, self._busy = 0.0, 0.0, False
