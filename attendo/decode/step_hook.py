"""Whoever looks on while a search goes: called before every step, and free to end it by an exception."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attendo.nn.cpu_threads import adapt_threads

_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


@contextmanager
def looked_on_by(look: Callable[[], None]) -> Iterator[None]:
    """In this thread, whatever searches."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)


@contextmanager
def unseen() -> Iterator[None]:
    """Nobody looks on, whoever did before."""
    before = _LOOK.set(None)
    try:
        yield
    finally:
        _LOOK.reset(before)


def between_steps() -> None:
    """To be called by everything that goes step by step."""
    adapt_threads()
    if (look := _LOOK.get()) is not None:
        look()
