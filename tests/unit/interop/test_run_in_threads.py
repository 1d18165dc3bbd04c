"""Searches in threads: the order of their results, and how all end when one fails or is interrupted."""

import signal
import threading
from collections.abc import Callable
from threading import Event

import pytest
import torch

from attendo.decode.search import run_step_hook, step_hook
from attendo.interop.onnx.engine import run_in_threads

LONG = 60.0  # seconds; only a failure takes that long


def test_results_are_in_the_order_of_the_calls() -> None:
    barrier = threading.Barrier(3)

    def call(number: int) -> Callable[[], int]:
        return lambda: barrier.wait(LONG) * 0 + number

    assert run_in_threads([call(n) for n in range(3)]) == [0, 1, 2]


def test_a_single_call_starts_no_thread() -> None:
    assert run_in_threads([threading.get_ident]) == [threading.get_ident()]


def test_the_torch_thread_count_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert run_in_threads([torch.get_num_threads]) == [1]
        assert run_in_threads([torch.get_num_threads] * 2) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_and_ends_the_other_calls(failing: int) -> None:
    ended: list[int] = []

    def fails() -> None:
        raise ValueError("of one of them")

    def goes_on(number: int) -> Callable[[], None]:
        return lambda: _run_until_ended(lambda: ended.append(number))

    calls = [fails if n == failing else goes_on(n) for n in range(3)]
    with pytest.raises(ValueError, match="of one of them"):
        run_in_threads(calls)
    assert sorted(ended) == [n for n in range(3) if n != failing]


def test_the_step_hook_of_the_calling_thread_can_end_all() -> None:
    hook_threads: list[int] = []
    ended: list[str] = []

    class CancelledError(Exception):
        pass

    def hook() -> None:
        hook_threads.append(threading.get_ident())
        if len(hook_threads) == 3:
            raise CancelledError

    def other() -> None:
        _run_until_ended(lambda: ended.append("other"))

    with step_hook(hook), pytest.raises(CancelledError):
        run_in_threads([lambda: _run_until_ended(lambda: ended.append("own")), other])
    assert hook_threads == [threading.get_ident()] * 3
    assert sorted(ended) == ["other", "own"]


@pytest.mark.parametrize("own_is_done", [False, True])
def test_an_interrupt_ends_all_calls(own_is_done: bool) -> None:
    done, ended = Event(), Event()
    main = threading.main_thread().ident
    assert main is not None

    def other() -> None:
        done.wait(LONG)
        signal.pthread_kill(main, signal.SIGINT)
        _run_until_ended(ended.set)

    def own() -> None:
        done.set()
        if not own_is_done:
            _run_until_ended(lambda: None)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the test runner may ignore SIGINT
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_threads([own, other])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def _run_until_ended(on_end: Callable[[], None]) -> None:
    """Run step hooks without end, as an endless search. Call `on_end` when an exception ends it."""
    waits = Event()
    try:
        while True:
            run_step_hook()
            waits.wait(0.001)
    except BaseException:
        on_end()
        raise
