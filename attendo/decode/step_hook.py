"""A per-thread hook that runs before every decoding step and may raise to cancel the search."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attendo.nn.cpu_threads import adapt_threads

_STEP_HOOK: ContextVar[Callable[[], None] | None] = ContextVar("look", default=None)


@contextmanager
def step_hook(hook: Callable[[], None]) -> Iterator[None]:
    """Run `hook` before every decoding step of this thread."""
    before = _STEP_HOOK.set(hook)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


@contextmanager
def no_step_hook() -> Iterator[None]:
    """Disable the hook of the surrounding context."""
    before = _STEP_HOOK.set(None)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


def run_step_hook() -> None:
    """Run the hook and adapt the CPU threads. Every decoding loop calls this before each step."""
    adapt_threads()
    if (look := _STEP_HOOK.get()) is not None:
        look()
