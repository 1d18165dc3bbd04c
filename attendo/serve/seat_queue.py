"""Those who wait for a seat, and whether one more would wait for too long."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable

from attendo.serve.jobs import Job

_LAST = 64  # answers that tell how long one takes
_KEPT_SECONDS = 60.0  # for which they do: those who come next may ask for something else
_MOST = 4  # times the seconds that may be waited for in any case: the most there may be, however long answers take


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
        took = [*self._took] if now - self._last <= _KEPT_SECONDS else []
        return statistics.fmean(took) if took else now - longest

    def _forget(self, now: float) -> None:
        if now - self._last > _KEPT_SECONDS:
            self._took.clear()
