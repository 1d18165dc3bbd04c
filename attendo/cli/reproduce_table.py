"""Recipes and what they came to as lines of text."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attendo.recipes.reproduce.config import Expectation
    from attendo.recipes.reproduce.outcome import Outcome, Row
    from attendo.recipes.reproduce.recipe import Recipe

_WORDS = {True: "pass", False: "fail", None: "not judged"}
_WIDTH = 100  # of the list of recipes
_LEFT = ("test", "score", "variant", "part", "expected", "published", "verdict")  # columns that are words


def listing(recipes: "Sequence[Recipe]") -> Iterator[str]:
    """A table of recipes: their tests with their numbers, the folder of the data, and below that what they are."""
    cells = [list(_listed(recipe)) for recipe in recipes]
    head = ("recipe", "test", "expected", "published", "data")
    widths = [max(map(len, column)) for column in zip(head, *chain.from_iterable(cells), strict=True)]

    def line(row: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    yield line(head)
    for recipe, rows in zip(recipes, cells, strict=True):
        yield from ("", *map(line, rows))
        yield from wrap(_what(recipe), _WIDTH, initial_indent="  ", subsequent_indent="  ")


def table(outcome: "Outcome") -> Iterator[str]:
    """A line a test; where there are variants, or parts of a test, one for each of them too; and the verdict."""
    yield f"{outcome.recipe.name}: {outcome.recipe.judged.about}"
    yield from _aligned([_cells(row) for row in outcome.rows])
    if apart := [cells for row in outcome.rows for cells in _cells_of_variants(row)]:
        yield ""
        yield from _aligned(apart)
    if outcome.recipe.expected_of is not None:
        yield f"not judged: what is expected is {outcome.recipe.expected_of}"
    elif outcome.passed is None:
        yield "not judged: the recipe has no numbers that are expected"
    else:
        yield "pass: as expected" if outcome.passed else "fail: worse than expected"


def _what(recipe: "Recipe") -> str:
    judged = recipe.judged
    trainings = len(judged.seeds) * max(1, len(judged.variants))
    variants = f" of {len(judged.variants)} variants" if judged.variants else ""
    return f"{judged.about}; {trainings} training{'s' if trainings > 1 else ''}{variants}"


def _listed(recipe: "Recipe") -> Iterator[tuple[str, ...]]:
    names = chain([(recipe.name, recipe.judged.dataset or "")], repeat(("", "")))
    for test, (name, data) in zip(recipe.judged.test, names, strict=False):
        published = "" if test.reference is None else f"{test.reference:g}"
        yield (name, f"{test.name} {test.metric}", _expected(test) or "not measured", published, data)


def _cells(row: "Row") -> dict[str, str]:
    test, metric = row.test, row.test.metric
    seeds = {f"seed {seed}": _number(value, metric) for seed, value in row.seeds.items()}
    together = {} if row.together is None else {"together": _number(row.together, metric)}
    found = {"test": test.name, "score": metric, **seeds, "mean": _number(row.mean, metric), **together}
    return {**found, "expected": _expected(test), "published": _published(test), "verdict": _WORDS[row.passed]}


def _cells_of_variants(row: "Row") -> Iterator[dict[str, str]]:
    name = "part" if row.test.parts else "variant"
    for variant in dict.fromkeys(each.variant for each in row.found if each.variant is not None):
        of = row.of(variant=variant)
        scores = {each.who: _number(each.score.value, row.test.metric) for each in of}
        named = {who if who == "together" else f"seed {who}": text for who, text in scores.items()}
        yield {"test": row.test.name, "score": row.test.metric, name: variant, **named}


def _aligned(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns = [name for name in columns if any(row.get(name) for row in rows)]
    lines = [dict(zip(columns, columns, strict=True)), *rows]
    widths = {name: max(len(line.get(name, "")) for line in lines) for name in columns}
    for line in lines:
        cells = [
            line.get(name, "").ljust(widths[name]) if name in _LEFT else line.get(name, "").rjust(widths[name])
            for name in columns
        ]
        yield "  ".join(cells).rstrip()


def _expected(test: "Expectation") -> str:
    return "" if test.expected is None else f"{test.expected:g} ± {test.spread:g}"


def _published(test: "Expectation") -> str:
    source = "" if test.reference_source is None else f" ({test.reference_source})"
    return "" if test.reference is None else f"{test.reference:g}{source}"


def _number(value: float, metric: str) -> str:
    return f"{value:.4f}" if metric == "loss" else f"{value:.2f}"
