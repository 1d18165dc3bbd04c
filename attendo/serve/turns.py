"""A thread that computes lets the event loop go first now and then: the two fight for one interpreter, and few cores.

While the loop has work, each of the hundreds of operations of a step would wait for the interpreter once more. So the
loop gets time of its own between two steps, finds little to do within them, and answers refusals at once.
"""

import asyncio
import threading
import time
from contextlib import suppress

_EVERY_SECONDS = 0.005  # of computing, after which the loop has a turn: waking it costs a tenth of a millisecond
_MOST_SECONDS = 0.02  # of a turn: whatever floods the loop, there is something left for those who were let in


class Turns:
    """Of one thread, with the loop of whoever asked it last."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._handled = threading.Event()
        self._begun = time.monotonic()

    def give(self) -> None:
        """Waits until the loop has handled what was ready, where the last time is long enough ago."""
        if self.loop is None or time.monotonic() - self._begun < _EVERY_SECONDS:
            return
        self._handled.clear()
        with suppress(RuntimeError):  # the loop is closed: nobody is there
            self.loop.call_soon_threadsafe(self._handled.set)
            self._handled.wait(_MOST_SECONDS)
        self._begun = time.monotonic()
