"""Handling of SIGINT, SIGTERM and SIGHUP: finish the step and save, or clean up and exit."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_Handler = Callable[[int, FrameType | None], None]


class Interrupt:
    """False until a signal arrives, then True. `exit_code` is 128 plus the signal number."""

    def __init__(self) -> None:
        self.exit_code = 0

    def __bool__(self) -> bool:
        return self.exit_code != 0


class SignalExit(SystemExit):
    """Raised by SIGTERM or SIGHUP, after its line was printed."""


def catch_signals() -> None:
    """Make SIGTERM and SIGHUP print one line and raise an exception, as Ctrl-C does."""
    process = os.getpid()

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        if os.getpid() != process:  # a forked worker ends silently, as it does without this handler
            os.kill(os.getpid(), number)
        _exit_on_signal(number, frame)

    for number in _list_ending_signals():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


def find_exit_code(error: BaseException | None) -> int | None:
    """Return the exit code of the signal that caused this error, or None.

    Extension modules replace exceptions raised during their import by ImportError, so the causes are searched.
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
    """Record the first signal. A second signal has its usual effect."""
    interrupt = Interrupt()

    def remember(number: int, frame: FrameType | None) -> None:
        interrupt.exit_code = 128 + number
        restore()  # for a second signal

    with _install_handlers([signal.SIGINT, *_list_ending_signals()], remember) as restore:
        yield interrupt


@contextmanager
def cleanup_on_signal() -> Iterator[None]:
    """Turn signals into exceptions, so that partial files are removed. Also usable as a decorator."""
    with _install_handlers(_list_ending_signals(), _exit_on_signal):
        yield


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    os.write(2, f"attendo: stopped by {signal.Signals(number).name}\n".encode())
    raise SignalExit(128 + number)


def _list_ending_signals() -> list[signal.Signals]:
    hang_up = getattr(signal, "SIGHUP", None)  # missing on Windows
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:  # nohup ignores SIGHUP
        return [signal.SIGTERM]
    return [signal.SIGTERM, hang_up]


@contextmanager
def _install_handlers(numbers: Sequence[signal.Signals], handler: _Handler) -> Iterator[Callable[[], None]]:
    """Install the handler for a block, and yield a function that restores the previous handlers."""
    before = {number: signal.signal(number, handler) for number in numbers}

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    try:
        yield restore
    finally:
        restore()
