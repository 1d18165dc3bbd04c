"""How long whoever comes will wait, by how fast those before them were answered."""

import math

_LEAST_SECONDS = 2.0  # of waiting, before anything is believed: those who end first may be few of many who began
_REMEMBERED_SECONDS = 10.0  # of waiting; what came before counts for less and less
_KEPT_SECONDS = 60.0  # for which what was seen is believed: those who come next may ask for something else


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
        known = self._seconds > _LEAST_SECONDS and now - self._last <= _KEPT_SECONDS
        return ahead * self._seconds / self._answers if known else 0.0

    def _forget(self, now: float) -> None:
        if now - self._last > _KEPT_SECONDS:
            self._seconds, self._answers, self._busy = 0.0, 0.0, False
