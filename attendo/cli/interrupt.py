"""Ctrl-C, SIGTERM and a lost terminal as a request: finish the step, save, then leave. A second one leaves at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """False until a signal came; then true, with the exit code that tells which."""

    def __init__(self) -> None:
        self.exit_code = 0

    def __bool__(self) -> bool:
        return self.exit_code != 0


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    interrupt = Interrupt()

    def remember(number: int, frame: FrameType | None) -> None:
        interrupt.exit_code = 128 + number
        for each, handler in before.items():  # whichever comes next is the second one
            signal.signal(each, handler)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it: work that is to outlive its terminal
        numbers.append(signal.SIGHUP)
    before = {int(number): signal.signal(number, remember) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
