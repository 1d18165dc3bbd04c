"""Ctrl-C, SIGTERM and a lost terminal: requests to finish the step and save, or reasons to tidy up and leave."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], None]


class Interrupt:
    """False until a signal came; then true, with the exit code that tells which."""

    def __init__(self) -> None:
        self.exit_code = 0

    def __bool__(self) -> bool:
        return self.exit_code != 0


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """A signal is remembered; a second one leaves at once."""
    interrupt = Interrupt()

    def remember(number: int, frame: FrameType | None) -> None:
        interrupt.exit_code = 128 + number
        for each, handler in before.items():  # whichever comes next is the second one
            signal.signal(each, handler)

    before = _handled([signal.SIGINT, *_ending()], remember)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def tidying() -> Iterator[None]:
    """A signal is an exception, as Ctrl-C always is, so that half-written files go. Decorates a command too."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = _handled(_ending(), leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending() -> list[signal.Signals]:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as nohup has it: work that is to outlive its terminal
        return [signal.SIGTERM]
    return [signal.SIGTERM, signal.SIGHUP]


def _handled(numbers: Sequence[signal.Signals], handler: _Handler) -> dict[int, Any]:
    """From now on; what did it before comes back."""
    return {int(number): signal.signal(number, handler) for number in numbers}
