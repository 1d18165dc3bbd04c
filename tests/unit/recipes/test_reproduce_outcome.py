"""What a recipe came to: means over seeds and variants, and the verdict."""

from pathlib import Path
from typing import Any

import pytest

from attendo.metrics import Score
from attendo.recipes.recipe import Recipe
from attendo.recipes.results import RecipeOutcome, RecipeTestResult, make_outcome
from attendo.recipes.scoring import ENSEMBLE, RecipeScore
from attendo.runs.recipe_config import Expectation, Reproduce

BLEU: dict[str, Any] = {"name": "test", "metric": "bleu"}


def scored(value: float, who: str = "1", variant: str | None = None, metric: str = "bleu") -> RecipeScore:
    score = Score(metric, value, "signature", higher_is_better=metric == "bleu")
    return RecipeScore(Expectation(name="test", metric=metric), variant, who, score, lines=10)


def row(*found: RecipeScore, whole: bool = True, **test: Any) -> RecipeTestResult:
    return RecipeTestResult(Expectation(**{**BLEU, "metric": found[0].test.metric, **test}), found, whole)


def test_a_seed_has_the_mean_of_its_variants_and_the_whole_the_mean_of_all() -> None:
    found = row(scored(10, "1", "bul"), scored(20, "1", "dut"), scored(30, "2", "bul"), scored(60, "2", "dut"))
    assert found.seeds == {"1": 15, "2": 45}
    assert (found.mean, found.value, found.ensemble) == (30, 30, None)


def test_where_models_answer_together_that_is_judged() -> None:
    found = row(
        scored(10, "1", "bul"), scored(20, "1", "dut"), scored(30, ENSEMBLE, "bul"), scored(50, ENSEMBLE, "dut"),
        expected=40,
    )  # fmt: skip
    assert found.seeds == {"1": 15}
    assert (found.mean, found.ensemble, found.value, found.passed) == (15, 40, 40, True)


@pytest.mark.parametrize(
    ("value", "metric", "passed"),
    [
        (41.0, "bleu", True),
        (40.5, "bleu", True),
        (40.49, "bleu", False),
        (90.0, "bleu", True),
        (41.0, "error_rate", True),
        (41.5, "error_rate", True),
        (41.51, "error_rate", False),
        (1.0, "error_rate", True),
    ],
)
def test_worse_by_more_than_the_spread_is_a_failure_and_better_never_is(
    value: float, metric: str, passed: bool
) -> None:
    assert row(scored(value, metric=metric), expected=41, spread=0.5).passed is passed


def test_a_mean_that_is_just_as_expected_passes_whatever_its_last_bit() -> None:
    assert row(*(scored(value, str(value)) for value in (0.1, 0.2, 0.3)), expected=0.2).passed


def test_nothing_is_judged_without_a_number_or_with_some_variants_only() -> None:
    assert row(scored(41)).passed is None
    assert row(scored(41), expected=1, whole=False).passed is None


@pytest.mark.parametrize(
    ("expected", "passed"),
    [((None, None), None), ((1, None), True), ((1, 1), True), ((1, 99), False), ((None, 99), False)],
)
def test_a_recipe_passes_where_all_that_is_judged_does(
    expected: tuple[float | None, float | None], passed: bool | None
) -> None:
    rows = tuple(row(scored(41), expected=each) for each in expected)
    assert RecipeOutcome(recipe(), (), rows).passed is passed


def test_scores_are_sorted_to_their_tests() -> None:
    judged = recipe({"name": "test", "metric": "error_rate"}, BLEU)
    found = make_outcome(judged, (), [scored(41), scored(7, metric="error_rate"), scored(43, "2")])
    assert [(each.test.metric, each.seeds) for each in found.rows] == [
        ("error_rate", {"1": 7}),
        ("bleu", {"1": 41, "2": 43}),
    ]


def recipe(*tests: dict[str, Any]) -> Recipe:
    judged = Reproduce(about="x", test=tests or [BLEU])
    return Recipe(Path("x.toml"), {"data": {}}, judged, judged.seeds, judged.variants)
