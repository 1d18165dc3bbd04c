"""Searches at once: what each returns, and how all of them end when one does not come to its end."""

import signal
import threading
from collections.abc import Callable
from threading import Event

import pytest
import torch

from attendo.decode.step_hook import run_step_hook, step_hook
from attendo.interop.onnx.engine import run_in_threads

LONG = 60.0  # seconds: nobody waits for that long unless something is wrong


def test_what_each_returns_comes_in_order_though_they_meet() -> None:
    meeting = threading.Barrier(3)

    def call(number: int) -> Callable[[], int]:
        return lambda: meeting.wait(LONG) * 0 + number

    assert run_in_threads([call(n) for n in range(3)]) == [0, 1, 2]


def test_a_single_one_starts_no_thread() -> None:
    assert run_in_threads([threading.get_ident]) == [threading.get_ident()]


def test_torch_computes_in_as_many_threads_afterwards_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert run_in_threads([torch.get_num_threads]) == [1]
        assert run_in_threads([torch.get_num_threads] * 2) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_arrives_and_ends_the_others(place: int) -> None:
    ended: list[int] = []

    def fails() -> None:
        raise ValueError("of one of them")

    def goes_on(number: int) -> Callable[[], None]:
        return lambda: _until_ended(lambda: ended.append(number))

    calls = [fails if n == place else goes_on(n) for n in range(3)]
    with pytest.raises(ValueError, match="of one of them"):
        run_in_threads(calls)
    assert sorted(ended) == [n for n in range(3) if n != place]


def test_who_looks_on_does_so_in_their_own_thread_and_can_end_all() -> None:
    looks: list[int] = []
    ended: list[str] = []

    class EnoughError(Exception):
        pass

    def look() -> None:
        looks.append(threading.get_ident())
        if len(looks) == 3:
            raise EnoughError

    def other() -> None:
        _until_ended(lambda: ended.append("other"))

    with step_hook(look), pytest.raises(EnoughError):
        run_in_threads([lambda: _until_ended(lambda: ended.append("own")), other])
    assert looks == [threading.get_ident()] * 3
    assert sorted(ended) == ["other", "own"]


@pytest.mark.parametrize("own_is_done", [False, True])
def test_an_interrupt_ends_all(own_is_done: bool) -> None:
    done, ended = Event(), Event()
    main = threading.main_thread().ident
    assert main is not None

    def other() -> None:
        done.wait(LONG)
        signal.pthread_kill(main, signal.SIGINT)
        _until_ended(ended.set)

    def own() -> None:
        done.set()
        if not own_is_done:
            _until_ended(lambda: None)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs tests may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_threads([own, other])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def _until_ended(told: Callable[[], None]) -> None:
    """Steps for ever, as a search that finds no end; tells when it is ended from outside."""
    waits = Event()
    try:
        while True:
            run_step_hook()
            waits.wait(0.001)
    except BaseException:
        told()
        raise
