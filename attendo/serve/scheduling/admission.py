"""Admission queues: reject a request if its estimated wait is too long."""

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from attendo.serve.scheduling.jobs import Job

# Those who can all sit down when the next ones get up may wait for that: where answers take long, to turn away the
# second who comes would help nobody.
_OF_NEXT = 4  # times the seconds that others may wait
_LAST = 64  # answers that tell how long one takes
_MAX_DURATION_AGE_SECONDS = 60.0  # for which they do: those who come next may ask for something else
_MOST = 4  # times the seconds that may be waited for in any case: the most there may be, however long answers take
_LEAST_SECONDS = 2.0  # of waiting, before anything is believed: those who end first may be few of many who began
_REMEMBERED_SECONDS = 10.0  # of waiting; what came before counts for less and less
_MAX_RATE_AGE_SECONDS = 60.0  # for which what was seen is believed: those who come next may ask for something else


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


class SeatQueue:
    """Of one model, from any thread. Jobs take themselves out when they have begun, or are over.

    Sentences that began together end together, and seats are free many at once and then none for a while. So the wait
    is that until the seat is free which would be theirs: by how long answers take, and since when each has been sat on.
    """

    def __init__(self, seconds: float, free: Callable[[], int]) -> None:
        """`seconds` that may be waited for in any case. Where answers take longer, so may the wait be, and half as long
        on the whole: whoever is let in is to be answered in about twice the time of somebody who need not wait.

        `free` tells how many seats there are for whoever comes now.
        """
        self.jobs: set[Job] = set()
        self._seconds, self._free = seconds, free
        self._sitting: list[Job] = []  # the longest first
        self._took: deque[float] = deque(maxlen=_LAST)
        self._last = float("-inf")

    @property
    def too_long(self) -> bool:
        """Whether somebody in a hurry is to be turned away."""
        now, free, waiting = time.monotonic(), self._free(), len(self.jobs)
        since = [job.since for job in self._sitting if not job.over]
        since += [now] * min(free, waiting)  # those who are about to sit down
        ahead = waiting - free
        if ahead < 0 or not since:
            return False
        answer = self._answer_seconds(now, since[0])
        rounds, seat = divmod(ahead, len(since))
        until_free = rounds * answer + max(0.0, answer - (now - since[seat]))
        on_the_whole = ahead / len(since) * answer  # also where many sit for longer than an answer takes
        return until_free > self._bounded(answer) or on_the_whole > self._bounded(answer / 2)

    def add(self, job: Job) -> None:
        job.wait_in(self.jobs)

    def answered(self, jobs: Iterable[Job]) -> None:
        """All of those who sat here."""
        if took := [job.seconds[1] for job in jobs]:
            self._forget(time.monotonic())
            self._took.extend(took)
            self._last = time.monotonic()

    def sit(self, jobs: Iterable[Job]) -> None:
        """Those who do now."""
        self._sitting = sorted((job for job in jobs if job.begun), key=lambda job: job.since)

    def _bounded(self, seconds: float) -> float:
        return min(_MOST * self._seconds, max(self._seconds, seconds))

    def _answer_seconds(self, now: float, longest: float) -> float:
        """What one takes; where none is known, as much as the longest has taken until now."""
        took = [*self._took] if now - self._last <= _MAX_DURATION_AGE_SECONDS else []
        return statistics.fmean(took) if took else now - longest

    def _forget(self, now: float) -> None:
        if now - self._last > _MAX_DURATION_AGE_SECONDS:
            self._took.clear()


class Pace:
    """Moments are those of `time.monotonic`. Only the time counts in which somebody waited, and what was answered then.

    Sentences that began together end together, so answers come many at once and then none for a while: seconds and
    answers are summed up apart, or a moment after many of them everybody would seem to have no wait at all.
    """

    def __init__(self) -> None:
        self._seconds, self._answers = 0.0, 0.0  # each the less, the longer ago
        self._last, self._busy = float("-inf"), False

    def waiting(self, now: float) -> None:
        """Somebody waits from now on, if nobody did before."""
        self._forget(now)
        if not self._busy:
            self._last, self._busy = now, True

    def answered(self, now: float, count: int, others_wait: bool) -> None:
        """So many at once: with only the first of them counted, all others would seem to take as long."""
        self._forget(now)
        if self._busy and others_wait:  # all the while, or nobody had to
            passed = now - self._last
            kept = math.exp(-passed / _REMEMBERED_SECONDS)
            self._seconds, self._answers = self._seconds * kept + passed, self._answers * kept + count
        self._last, self._busy = now, others_wait

    def wait(self, now: float, ahead: int) -> float:
        """Seconds for somebody behind so many others; none where nobody knows."""
        known = self._seconds > _LEAST_SECONDS and now - self._last <= _MAX_RATE_AGE_SECONDS
        return ahead * self._seconds / self._answers if known else 0.0

    def _forget(self, now: float) -> None:
        if now - self._last > _MAX_RATE_AGE_SECONDS:
            self._seconds, self._answers, self._busy = 0.0, 0.0, False
