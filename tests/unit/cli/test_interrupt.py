"""Signals as a request to finish, or to tidy up and leave."""

import os
import signal
from collections.abc import Iterator

import pytest

from attendo.cli.signals import cleanup_on_signal, defer_signals


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """As one has it, also where the tests themselves are to outlive theirs (nohup)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_remembered_and_nothing_is_torn_down(number: int, code: int) -> None:
    with defer_signals() as interrupt:
        assert not interrupt
        os.kill(os.getpid(), number)
        assert interrupt
        assert interrupt.exit_code == code


def test_work_that_is_to_outlive_its_terminal_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with defer_signals() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_is_no_request() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
    try:
        with defer_signals() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupt
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_afterwards_signals_mean_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError), defer_signals():
        raise RuntimeError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_as_ctrl_c_does(number: int, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, cleanup_on_signal():
        os.kill(os.getpid(), number)
    assert left.value.code == code
    assert signal.getsignal(number) is before


def test_what_outlives_its_terminal_is_not_torn_down_either() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cleanup_on_signal():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
