"""Results of a recipe: scores by seed and variant, expected values and a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from attendo.model_files import format_json
from attendo.recipes.files import compute_checksums, list_test_files, write_text_file
from attendo.recipes.recipe import PlannedRun, Recipe
from attendo.recipes.run_state import read_run_facts
from attendo.recipes.scoring import ENSEMBLE, RecipeScore
from attendo.runs.recipe_config import Expectation

RESULTS_FILE = "results.json"
PARTIAL_RESULTS_FILE = "results-partial.json"  # for selected seeds or variants; does not replace the full results
_MACHINE_FACTS = ("hardware", "device", "threads", "cores", "python", "torch", "attendo")
_ROUNDING = 1e-9  # a mean of values equal to the expected one may be lower by a rounding error


@dataclass(frozen=True)
class RecipeTestResult:
    """Result of one test: a score for every seed and variant."""

    test: Expectation
    scores: tuple[RecipeScore, ...]
    is_complete: bool  # True if all runs that the expected number covers are included

    @property
    def higher_is_better(self) -> bool:
        return self.scores[0].score.higher_is_better

    @property
    def seeds(self) -> dict[str, float]:
        """The mean over the variants, by seed."""
        names = dict.fromkeys(each.model_label for each in self.scores if each.model_label != ENSEMBLE)
        return {name: self._mean(self.select_scores(model_label=name)) for name in names}

    @property
    def ensemble(self) -> float | None:
        """The mean over the variants for the ensemble of all seeds; None if there is no ensemble."""
        found = self.select_scores(model_label=ENSEMBLE)
        return self._mean(found) if found else None

    @property
    def mean(self) -> float:
        """The mean over seeds and variants."""
        return fmean(self.seeds.values())

    @property
    def value(self) -> float:
        """The value compared with the expected one."""
        return self.mean if self.ensemble is None else self.ensemble

    @property
    def verdict(self) -> bool | None:
        """Whether the test passed; None if nothing is expected, or the expected number covers more runs."""
        expected, spread = self.test.expected, self.test.spread + _ROUNDING
        if expected is None or not self.is_complete:
            return None
        return self.value >= expected - spread if self.higher_is_better else self.value <= expected + spread

    def select_scores(self, model_label: str | None = None, variant: str | None = None) -> list[RecipeScore]:
        return [
            each for each in self.scores if model_label in (None, each.model_label) and variant in (None, each.variant)
        ]

    @staticmethod
    def _mean(scores: Sequence[RecipeScore]) -> float:
        return fmean(each.score.value for each in scores)


@dataclass(frozen=True)
class RecipeOutcome:
    """Results of all tests of a recipe."""

    recipe: Recipe
    runs: tuple[PlannedRun, ...]
    rows: tuple[RecipeTestResult, ...]

    @property
    def verdict(self) -> bool | None:
        """Whether all tests with a verdict passed; None if there are none."""
        judged = [row.verdict for row in self.rows if row.verdict is not None]
        return all(judged) if judged else None


def make_outcome(recipe: Recipe, runs: Sequence[PlannedRun], scores: Sequence[RecipeScore]) -> RecipeOutcome:
    """Group scores in the order of the recipe's tests."""
    tests = {(test.name, test.metric): test for test in recipe.criteria.test}
    is_complete = recipe.full_scope is None
    rows = [
        RecipeTestResult(test, tuple(each for each in scores if (each.test.name, each.test.metric) == key), is_complete)
        for key, test in tests.items()
    ]
    return RecipeOutcome(recipe, tuple(runs), tuple(rows))


def write_results(
    outcome: RecipeOutcome, out: Path, folder: Path | None, machine: Mapping[str, Any], seconds: float
) -> Path:
    """Write all results with date and machine. `folder` is the data folder; `machine` and `seconds` are of scoring."""
    recipe, judged = outcome.recipe, outcome.recipe.criteria
    configs = [recipe.config(variant, folder) for variant in recipe.variants or (None,)]
    runs = [
        {
            "variant": run.variant,
            "seed": run.seed,
            "folder": str(run.folder.relative_to(out)),
            **read_run_facts(run.folder),
        }
        for run in outcome.runs
    ]
    content = {
        "recipe": recipe.name,
        "about": judged.about,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "passed": outcome.verdict,
        "scored_with": {name: machine[name] for name in _MACHINE_FACTS},
        "scoring_seconds": round(seconds, 1),
        "training_seconds": round(sum(run["training_seconds"] for run in runs), 1),
        "decoding": judged.decoding,
        "data": None if (data_folder := configs[0].data.folder) is None else str(data_folder),
        "tested_on": {
            name: value for config in configs for name, value in compute_checksums(list_test_files(config)).items()
        },
        "tests": [_result_to_dict(row) for row in outcome.rows],
        "runs": runs,
    }
    path = out / (PARTIAL_RESULTS_FILE if recipe.is_partial else RESULTS_FILE)
    write_text_file(path, format_json(content))
    return path


def _result_to_dict(row: RecipeTestResult) -> dict[str, Any]:
    variants = dict.fromkeys(each.variant for each in row.scores if each.variant is not None)
    by_variant = {
        variant: {each.model_label: each.score.value for each in row.select_scores(variant=variant)}
        for variant in variants
    }
    return {
        **row.test.model_dump(mode="json", include={"name", "metric", "expected", "spread"}),
        **row.test.model_dump(mode="json", include={"reference", "reference_source"}, exclude_none=True),
        "passed": row.verdict,
        "value": row.value,
        "mean": row.mean,
        "seeds": row.seeds,
        **({} if row.ensemble is None else {ENSEMBLE: row.ensemble}),
        **({"variants": by_variant} if by_variant else {}),
        "higher_is_better": row.higher_is_better,
        "signatures": list(dict.fromkeys(each.score.signature for each in row.scores)),
        "lines": sum(each.lines for each in row.select_scores(model_label=row.scores[0].model_label)),
        "cut": sum(each.truncated for each in row.scores),
    }
