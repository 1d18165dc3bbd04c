"""A per-thread hook that runs before every decoding step and may raise to cancel the search."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from attendo.nn.cpu_threads import adapt_threads

_STEP_HOOK: ContextVar[Callable[[], None] | None] = ContextVar("step_hook", default=None)


@contextmanager
def step_hook(hook: Callable[[], None]) -> Iterator[None]:
    """Run `hook` before every decoding step of this thread."""
    before = _STEP_HOOK.set(hook)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


def run_step_hook() -> None:
    """Run the hook and adapt the CPU threads. Every decoding loop calls this before each step."""
    adapt_threads()
    if (hook := _STEP_HOOK.get()) is not None:
        hook()
