"""Admission queues: reject a request if its estimated wait is too long."""

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from attendo.serve.scheduling.jobs import ScheduledJob

# Requests that fit into the next batch may wait longer: if answers take long, rejecting the second request is useless.
_NEXT_BATCH_WAIT_FACTOR = 4  # times `max_wait`
_MAX_DURATIONS = 64  # latest jobs whose mean duration is used
_MAX_DURATION_AGE_SECONDS = 60.0  # older durations are discarded: the next requests may differ
_MAX_WAIT_FACTOR = 4  # times `max_wait`: upper bound of the allowed wait
_MIN_OBSERVED_SECONDS = 2.0  # of waiting before an estimate is used: the first jobs to finish may be few of many
_DECAY_SECONDS = 10.0  # time constant of the exponential decay
_MAX_RATE_AGE_SECONDS = 60.0  # older observations are discarded: the next requests may differ


class UnbatchedAdmissionQueue:
    """Queue of the jobs of one model that cannot be batched; thread-safe.

    Jobs remove themselves when they start or end.
    """

    def __init__(self, max_wait: float, next_batch_size: int) -> None:
        """`max_wait` is the longest estimated wait in seconds. `next_batch_size` is the number of jobs in a batch."""
        self.jobs: set[ScheduledJob] = set()
        self._max_wait, self._next_batch_size = max_wait, next_batch_size
        self._estimator, self._lock = WaitEstimator(), threading.Lock()

    @property
    def is_overloaded(self) -> bool:
        """True if the estimated wait is too long for a job that cannot wait."""
        waiting = len(self.jobs)
        patience = self._max_wait * (_NEXT_BATCH_WAIT_FACTOR if waiting < self._next_batch_size else 1)
        with self._lock:
            return self._estimator.estimate_wait(time.monotonic(), waiting) > patience

    def add(self, job: ScheduledJob) -> None:
        with self._lock:
            if self.jobs:  # otherwise the job may have started already
                self._estimator.start_waiting(time.monotonic())
        job.wait_in(self.jobs)

    def record_finished(self, count: int) -> None:
        """Record that this number of jobs has finished."""
        if count:
            with self._lock:
                self._estimator.record_finished(time.monotonic(), count, others_wait=bool(self.jobs))


class BatchAdmissionQueue:
    """Queue of the batched jobs of one model; thread-safe. Jobs remove themselves when they start or end.

    Sentences batched together finish together, so slots are freed in bursts. The wait is therefore estimated until the
    slot of the new job is free, from the mean duration of a job and the start times of the running ones.
    """

    def __init__(self, max_wait: float, free_slots: Callable[[], int]) -> None:
        """`max_wait` seconds of waiting are always allowed; `free_slots` returns the number of slots for new jobs.

        If jobs take longer, the wait may be as long as one job, and the average wait half as long. An admitted job
        then finishes in about twice the time of a job that need not wait.
        """
        self.jobs: set[ScheduledJob] = set()
        self._max_wait, self._free_slots = max_wait, free_slots
        self._running: list[ScheduledJob] = []  # earliest start first
        self._durations: deque[float] = deque(maxlen=_MAX_DURATIONS)
        self._last_finished = float("-inf")

    @property
    def is_overloaded(self) -> bool:
        """True if the estimated wait is too long for a job that cannot wait."""
        now, free, waiting = time.monotonic(), self._free_slots(), len(self.jobs)
        since = [job.started_at for job in self._running if not job.finished]
        since += [now] * min(free, waiting)  # jobs that start at the next step
        ahead = waiting - free
        if ahead < 0 or not since:
            return False
        answer = self._mean_duration(now, since[0])
        rounds, slot = divmod(ahead, len(since))
        until_free = rounds * answer + max(0.0, answer - (now - since[slot]))
        mean_wait = ahead / len(since) * answer  # also if many run for longer than the mean
        return until_free > self._bound_wait(answer) or mean_wait > self._bound_wait(answer / 2)

    def add(self, job: ScheduledJob) -> None:
        job.wait_in(self.jobs)

    def record_finished(self, jobs: Iterable[ScheduledJob]) -> None:
        """Record the durations of finished jobs."""
        if took := [job.wait_and_run_seconds[1] for job in jobs]:
            self._discard_stale(time.monotonic())
            self._durations.extend(took)
            self._last_finished = time.monotonic()

    def set_running(self, jobs: Iterable[ScheduledJob]) -> None:
        """Replace the running jobs."""
        self._running = sorted((job for job in jobs if job.has_started), key=lambda job: job.started_at)

    def _bound_wait(self, seconds: float) -> float:
        return min(_MAX_WAIT_FACTOR * self._max_wait, max(self._max_wait, seconds))

    def _mean_duration(self, now: float, oldest_start: float) -> float:
        """Return the mean duration of a job; if none is known, the time since the oldest start."""
        took = [*self._durations] if now - self._last_finished <= _MAX_DURATION_AGE_SECONDS else []
        return statistics.fmean(took) if took else now - oldest_start

    def _discard_stale(self, now: float) -> None:
        if now - self._last_finished > _MAX_DURATION_AGE_SECONDS:
            self._durations.clear()


class WaitEstimator:
    """Estimates waits from the rate of finished jobs while others wait. Times are those of `time.monotonic`.

    Sentences batched together finish together, so results arrive in bursts. Seconds and jobs are therefore summed
    separately; otherwise the estimated wait would be almost 0 just after a burst.
    """

    def __init__(self) -> None:
        self._seconds, self._num_finished = 0.0, 0.0  # with exponential decay
        self._last, self._busy = float("-inf"), False

    def start_waiting(self, now: float) -> None:
        """Start the clock at the first waiting job."""
        self._discard_stale(now)
        if not self._busy:
            self._last, self._busy = now, True

    def record_finished(self, now: float, count: int, others_wait: bool) -> None:
        """Record `count` jobs that finished together. If only one counted, the rate would be too low."""
        self._discard_stale(now)
        if self._busy and others_wait:  # jobs waited during the whole interval
            passed = now - self._last
            decay = math.exp(-passed / _DECAY_SECONDS)
            self._seconds, self._num_finished = self._seconds * decay + passed, self._num_finished * decay + count
        self._last, self._busy = now, others_wait

    def estimate_wait(self, now: float, ahead: int) -> float:
        """Return the estimated seconds of waiting with `ahead` jobs in front; 0 if the rate is unknown."""
        known = self._seconds > _MIN_OBSERVED_SECONDS and now - self._last <= _MAX_RATE_AGE_SECONDS
        return ahead * self._seconds / self._num_finished if known else 0.0

    def _discard_stale(self, now: float) -> None:
        if now - self._last > _MAX_RATE_AGE_SECONDS:
            self._seconds, self._num_finished, self._busy = 0.0, 0.0, False
