"""The short form of parametrized tests, for `make test`; `make test-all` runs every case."""

from collections.abc import Iterable
from typing import Any

import pytest


def mark_spare_combinations(items: Iterable[Any]) -> None:
    """Keep combinations of a grid until every value occurs once; mark the others as slow."""
    for grid in group_by_test(items):
        for item in spare(grid):
            item.add_marker(pytest.mark.slow)


def mark_further_cases(items: Iterable[Any]) -> None:
    """A test marked `short(n)` keeps n of its cases, spread evenly over the list; mark the others as slow."""
    for cases in group_by_test(item for item in items if item.get_closest_marker("short")):
        (count,) = cases[0].get_closest_marker("short").args
        kept = {index * len(cases) // count for index in range(count)}
        for index, item in enumerate(cases):
            if index not in kept:
                item.add_marker(pytest.mark.slow)


def group_by_test(items: Iterable[Any]) -> Iterable[list[Any]]:
    """The cases of each parametrized test that `make test` would run."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return groups.values()


def spare(grid: Iterable[Any]) -> list[Any]:
    """The cases that add no new value, after the ones along the diagonal."""
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
    """One value per `parametrize` and per parametrized fixture. Names that share a `parametrize` count as one value."""
    together = [_names(mark.args[0]) for mark in item.iter_markers("parametrize")]
    alone = [(name,) for name in item.callspec.params if not any(name in names for names in together)]
    return {(names, *(id(item.callspec.params[name]) for name in names)) for names in (*together, *alone)}


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else tuple(given)
