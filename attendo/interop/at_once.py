"""Several searches at once, each in a thread of its own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event
from typing import TypeVar

import torch

from attendo.decode.watching import between_steps, looked_on_by

Result = TypeVar("Result")
_SIGNAL_SECONDS = 0.1  # within which an interrupt is seen


class _Stopped(Exception):  # noqa: N818  (it is no error)
    """Another one of them has failed."""


def at_once(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each returns, in order. The first one goes on in this thread, and with it whoever looks on here.

    What one of them raises is raised here, after all others have stopped: they do so before their next step.
    """
    first, *others = calls
    with _one_thread():
        return _in_threads(first, others) if others else [first()]


def _in_threads(first: Callable[[], Result], others: Sequence[Callable[[], Result]]) -> list[Result]:
    failed, here = Event(), copy_context()

    def stop_if_failed() -> None:
        if failed.is_set():
            raise _Stopped

    def look() -> None:
        here.run(between_steps)
        stop_if_failed()

    def computed(call: Callable[[], Result], look: Callable[[], None]) -> Result:
        try:
            with looked_on_by(look):
                return call()
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(others)) as pool:
        waiting = [pool.submit(computed, call, stop_if_failed) for call in others]
        try:
            own = computed(first, look)
            # A signal that arrives just before a wait without a limit is seen after it only.
            while wait(waiting, _SIGNAL_SECONDS).not_done:
                pass
            return [own, *(each.result() for each in waiting)]
        except _Stopped:
            errors = [each.exception() for each in waiting]
            raise next(each for each in errors if each and not isinstance(each, _Stopped)) from None
        except BaseException:  # such as an interrupt while the others are waited for
            failed.set()
            raise


@contextmanager
def _one_thread() -> Iterator[None]:
    """What torch computes stays in the thread that asks, also in those that are begun meanwhile.

    It is the choice of tokens alone: shared by several threads, so little takes longer, even for one sentence.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
