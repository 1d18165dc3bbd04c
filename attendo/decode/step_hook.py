"""Whoever looks on while a search goes: called before every step, and free to end it by an exception."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attendo.nn.cpu_threads import adapt_threads

_STEP_HOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


@contextmanager
def step_hook(hook: Callable[[], None]) -> Iterator[None]:
    """In this thread, whatever searches."""
    before = _STEP_HOOK.set(hook)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


@contextmanager
def no_step_hook() -> Iterator[None]:
    """Nobody looks on, whoever did before."""
    before = _STEP_HOOK.set(None)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


def run_step_hook() -> None:
    """To be called by everything that goes step by step."""
    adapt_threads()
    if (look := _STEP_HOOK.get()) is not None:
        look()
