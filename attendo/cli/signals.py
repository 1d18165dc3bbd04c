"""Ctrl-C, SIGTERM and a lost terminal: requests to finish the step and save, or reasons to tidy up and leave."""

import os
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


class SignalExit(SystemExit):
    """SIGTERM or SIGHUP came. The line that says so is printed already."""


def catch_signals() -> None:
    """From now on SIGTERM and SIGHUP are one line and an exception, as Ctrl-C is."""
    process = os.getpid()

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        if os.getpid() != process:  # a forked worker ends without a word, as it does without this handler
            os.kill(os.getpid(), number)
        _exit_on_signal(number, frame)

    for number in _list_ending_signals():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


def find_exit_code(error: BaseException | None) -> int | None:
    """The code of the signal that led to this error; None where none did.

    Extension modules replace what is raised while they are imported by an ImportError: its causes are searched.
    """
    while error is not None:
        if isinstance(error, SignalExit):
            return int(str(error.code))
        if isinstance(error, KeyboardInterrupt):
            return 130
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def defer_signals() -> Iterator[Interrupt]:
    """A signal is remembered; a second one leaves at once."""
    interrupt = Interrupt()

    def remember(number: int, frame: FrameType | None) -> None:
        interrupt.exit_code = 128 + number
        for each, handler in before.items():  # whichever comes next is the second one
            signal.signal(each, handler)

    before = _install_handlers([signal.SIGINT, *_list_ending_signals()], remember)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def cleanup_on_signal() -> Iterator[None]:
    """A signal is an exception, as Ctrl-C always is, so that half-written files go. Decorates a command too."""

    before = _install_handlers(_list_ending_signals(), _exit_on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    os.write(2, f"attendo: stopped by {signal.Signals(number).name}\n".encode())
    raise SignalExit(128 + number)


def _list_ending_signals() -> list[signal.Signals]:
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:  # nohup: work that is to outlive its terminal
        return [signal.SIGTERM]
    return [signal.SIGTERM, hang_up]


def _install_handlers(numbers: Sequence[signal.Signals], handler: _Handler) -> dict[int, Any]:
    """From now on; what did it before comes back."""
    return {int(number): signal.signal(number, handler) for number in numbers}
