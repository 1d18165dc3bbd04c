"""The short form of a grid of parameters, for `make test`; `make test-all` has all of it."""

from collections.abc import Iterable
from typing import Any

import pytest


def mark_spare_combinations(items: Iterable[Any]) -> None:
    """Of a grid of parameters every value occurs at least once; the other combinations become slow tests."""
    grids: dict[str, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            grids.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for grid in grids.values():
        for item in spare(grid):
            item.add_marker(pytest.mark.slow)


def spare(grid: Iterable[Any]) -> list[Any]:
    """Those that are not needed for every value to occur, after the ones along the diagonal."""
    seen: set[tuple[object, ...]] = set()
    rest = []
    for item in grid:
        if seen.isdisjoint(values(item)):
            seen |= values(item)
        else:
            rest.append(item)
    unneeded = []
    for item in rest:
        if values(item) <= seen:
            unneeded.append(item)
        seen |= values(item)
    return unneeded


def values(item: Any) -> set[tuple[object, ...]]:
    """One for each `parametrize` and each fixture with parameters: names that are given together have one value."""
    together = [_names(mark.args[0]) for mark in item.iter_markers("parametrize")]
    alone = [(name,) for name in item.callspec.params if not any(name in names for names in together)]
    return {(names, *(id(item.callspec.params[name]) for name in names)) for names in (*together, *alone)}


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)
