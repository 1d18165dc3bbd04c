"""`make test` skips combinations of a grid, but keeps every value; it skips cases of tests marked `short`."""

from itertools import product

import pytest

pytest_plugins = ["pytester"]

GRID = """
import pytest

@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize(("b", "c"), [(0, False), (0, True), (1, True)])
def test_grid(a, b, c): ...

@pytest.mark.parametrize(("b", "c"), [(0, False), (0, True), (1, False), (1, True)])
def test_list(b, c): ...

@pytest.fixture(params="uv")
def letter(request): return request.param

@pytest.mark.parametrize("a", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_fixture(a, letter): ...

@pytest.mark.short(2)
@pytest.mark.parametrize("a", range(5))
def test_short(a): ...
"""
PLUGIN = """
from short_form import mark_further_cases, mark_spare_combinations

def pytest_collection_modifyitems(items):
    mark_spare_combinations(items)
    mark_further_cases(items)
"""


def test_every_value_is_kept_along_the_diagonal(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(PLUGIN)
    pytester.makeini("[pytest]\nmarkers =\n slow\n short\naddopts = -p no:cacheprovider")
    items, _ = pytester.inline_genitems(pytester.makepyfile(GRID))
    kept = [item.name for item in items if not item.get_closest_marker("slow")]
    assert kept == [
        *("test_grid[0-False-x]", "test_grid[0-True-y]", "test_grid[1-True-z]"),
        *(f"test_list[{b}-{c}]" for b, c in product((0, 1), (False, True))),
        *("test_fixture[u-1]", "test_fixture[v-2]", "test_short[0]", "test_short[2]"),
    ]
