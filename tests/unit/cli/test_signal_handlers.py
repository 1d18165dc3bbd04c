"""`defer_signals` and `cleanup_on_signal`."""

import os
import signal
from collections.abc import Iterator

import pytest

from attendo.cli.signals import cleanup_on_signal, defer_signals


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """The default SIGHUP handler, also if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_deferred_signal_is_stored(number: int, code: int) -> None:
    with defer_signals() as interrupt:
        assert not interrupt
        os.kill(os.getpid(), number)
        assert interrupt
        assert interrupt.exit_code == code


def test_defer_signals_keeps_ignored_sighup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with defer_signals() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_sigint_raises_keyboard_interrupt() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # SIGINT is ignored in background jobs
    try:
        with defer_signals() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupt
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError), defer_signals():
        raise RuntimeError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_cleanup_on_signal_raises_system_exit(number: int, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as exit_info, cleanup_on_signal():
        os.kill(os.getpid(), number)
    assert exit_info.value.code == code
    assert signal.getsignal(number) is before


def test_cleanup_on_signal_keeps_ignored_sighup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cleanup_on_signal():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
