"""Results of a recipe: means over seeds and variants, and the verdict."""

from pathlib import Path
from typing import Any

import pytest

from attendo.metrics import Score
from attendo.recipes.recipe import Recipe
from attendo.recipes.results import RecipeOutcome, RecipeTestResult, make_outcome
from attendo.recipes.scoring import ENSEMBLE, RecipeScore
from attendo.runs.recipe_config import Expectation, Reproduce

BLEU: dict[str, Any] = {"name": "test", "metric": "bleu"}


def make_score(value: float, model_label: str = "1", variant: str | None = None, metric: str = "bleu") -> RecipeScore:
    score = Score(metric, value, "signature", higher_is_better=metric == "bleu")
    return RecipeScore(Expectation(name="test", metric=metric), variant, model_label, score, lines=10)


def make_result(*found: RecipeScore, complete: bool = True, **test: Any) -> RecipeTestResult:
    return RecipeTestResult(Expectation(**{**BLEU, "metric": found[0].test.metric, **test}), found, complete)


def test_seeds_average_variants_and_the_mean_averages_seeds() -> None:
    found = make_result(
        make_score(10, "1", "bul"), make_score(20, "1", "dut"), make_score(30, "2", "bul"), make_score(60, "2", "dut")
    )
    assert found.seeds == {"1": 15, "2": 45}
    assert (found.mean, found.value, found.ensemble) == (30, 30, None)


def test_the_ensemble_score_is_judged() -> None:
    found = make_result(
        make_score(10, "1", "bul"), make_score(20, "1", "dut"),
        make_score(30, ENSEMBLE, "bul"), make_score(50, ENSEMBLE, "dut"),
        expected=40,
    )  # fmt: skip
    assert found.seeds == {"1": 15}
    assert (found.mean, found.ensemble, found.value, found.verdict) == (15, 40, 40, True)


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
def test_a_result_fails_only_if_worse_by_more_than_the_spread(value: float, metric: str, passed: bool) -> None:
    assert make_result(make_score(value, metric=metric), expected=41, spread=0.5).verdict is passed


def test_a_mean_equal_to_the_expectation_passes() -> None:
    assert make_result(*(make_score(value, str(value)) for value in (0.1, 0.2, 0.3)), expected=0.2).verdict


def test_no_expectation_or_a_subset_is_not_judged() -> None:
    assert make_result(make_score(41)).verdict is None
    assert make_result(make_score(41), expected=1, complete=False).verdict is None


@pytest.mark.parametrize(
    ("expected", "passed"),
    [((None, None), None), ((1, None), True), ((1, 1), True), ((1, 99), False), ((None, 99), False)],
)
def test_a_recipe_passes_if_all_judged_tests_pass(
    expected: tuple[float | None, float | None], passed: bool | None
) -> None:
    rows = tuple(make_result(make_score(41), expected=each) for each in expected)
    assert RecipeOutcome(make_recipe(), (), rows).verdict is passed


def test_scores_are_grouped_by_test() -> None:
    criteria = make_recipe({"name": "test", "metric": "error_rate"}, BLEU)
    found = make_outcome(criteria, (), [make_score(41), make_score(7, metric="error_rate"), make_score(43, "2")])
    assert [(each.test.metric, each.seeds) for each in found.rows] == [
        ("error_rate", {"1": 7}),
        ("bleu", {"1": 41, "2": 43}),
    ]


def make_recipe(*tests: dict[str, Any]) -> Recipe:
    criteria = Reproduce(about="x", test=tests or [BLEU])
    return Recipe(Path("x.toml"), {"data": {}}, criteria, criteria.seeds, criteria.variants)
