"""The step hook runs before every step of every engine, and can stop the search."""

from collections.abc import Callable

import pytest
from tiny import tiny_model

from attendo.decode.search import run_step_hook, step_hook


class StopSearchError(Exception):
    """Raised by the hook of a test."""


@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_the_hook_runs_before_every_step(engine: str) -> None:
    calls: list[int] = []
    model = tiny_model()
    options = {"engine": engine, "min_length": 9, "max_length": 9}
    with step_hook(lambda: calls.append(1)):
        model.generate(["the cat sat"], **options)
    assert len(calls) >= 9
    calls.clear()
    model.generate(["the cat sat"], **options)
    assert calls == []


@pytest.mark.short(1)
@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_an_exception_stops_the_search_but_not_the_next_one(engine: str) -> None:
    model, left = tiny_model(), 3

    def hook() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopSearchError

    expected = model.generate(["a dog ran home"], engine=engine)
    with pytest.raises(StopSearchError), step_hook(hook):
        model.generate(["the cat sat"], engine=engine, min_length=9)
    assert left == 0
    assert model.generate(["a dog ran home"], engine=engine) == expected


def test_an_inner_hook_replaces_the_outer_one_while_active() -> None:
    seen: list[str] = []
    outer: Callable[[], None] = lambda: seen.append("outer")  # noqa: E731
    with step_hook(outer):
        with step_hook(lambda: seen.append("inner")):
            run_step_hook()
        run_step_hook()
    run_step_hook()
    assert seen == ["inner", "outer"]
