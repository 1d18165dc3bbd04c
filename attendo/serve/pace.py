"""How long whoever comes will wait, by how fast those before them were answered."""

_RECENT = 32  # answers that count
_KEPT_SECONDS = 60.0  # for which what was seen is believed: those who come next may ask for something else


class Pace:
    """Moments are those of `time.monotonic`. Of answers, only those count between which somebody waited."""

    def __init__(self) -> None:
        self._between, self._count = 0.0, 0  # the mean of the seconds between two answers, and of how many
        self._last, self._busy = float("-inf"), False

    def answered(self, now: float, others_wait: bool) -> None:
        if now - self._last > _KEPT_SECONDS:
            self._between, self._count = 0.0, 0
        elif self._busy:
            self._count = min(self._count + 1, _RECENT)
            self._between += (now - self._last - self._between) / self._count
        self._last, self._busy = now, others_wait

    def wait(self, now: float, ahead: int) -> float:
        """Seconds for somebody behind so many others; none where nobody knows."""
        return ahead * self._between if now - self._last <= _KEPT_SECONDS else 0.0
