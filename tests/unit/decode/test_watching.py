"""Whoever looks on hears of every step of every engine, and can end it."""

from collections.abc import Callable

import pytest
from tiny import tiny_model

from attendo.decode.step_hook import run_step_hook, step_hook


class EnoughError(Exception):
    """Raised by whoever looks on."""


@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_every_step_is_looked_on(engine: str) -> None:
    looks: list[int] = []
    model = tiny_model()
    options = {"engine": engine, "min_length": 9, "max_length": 9}
    with step_hook(lambda: looks.append(1)):
        model.generate(["the cat sat"], **options)
    assert len(looks) >= 9
    looks.clear()
    model.generate(["the cat sat"], **options)
    assert looks == []


@pytest.mark.short(1)
@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_what_is_raised_ends_the_search_and_the_next_one_is_as_ever(engine: str) -> None:
    model, left = tiny_model(), 3

    def look() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise EnoughError

    expected = model.generate(["a dog ran home"], engine=engine)
    with pytest.raises(EnoughError), step_hook(look):
        model.generate(["the cat sat"], engine=engine, min_length=9)
    assert left == 0
    assert model.generate(["a dog ran home"], engine=engine) == expected


def test_the_one_inside_looks_on_as_long_as_it_is_there() -> None:
    seen: list[str] = []
    outer: Callable[[], None] = lambda: seen.append("outer")  # noqa: E731
    with step_hook(outer):
        with step_hook(lambda: seen.append("inner")):
            run_step_hook()
        run_step_hook()
    run_step_hook()
    assert seen == ["inner", "outer"]
