"""What a recipe came to: scores by seed and variant, beside what was expected, and a verdict."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from attendo.recipes.files import checksums, files_of_tests, keep
from attendo.recipes.recipe import Planned, Recipe
from attendo.recipes.run_state import facts_of
from attendo.recipes.scoring import TOGETHER, Scored
from attendo.runs.recipe_config import Expectation

RESULTS = "results.json"
SOME_RESULTS = "results-partial.json"  # of some seeds or variants: those of all of them stay
_MACHINE = ("hardware", "device", "threads", "cores", "python", "torch", "attendo")
_ROUNDING = 1e-9  # a mean of numbers that are just as expected may come out a last bit below


@dataclass(frozen=True)
class Row:
    """One test: a score of every seed and variant."""

    test: Expectation
    found: tuple[Scored, ...]
    whole: bool  # whether all is there that the expected number is of

    @property
    def higher_is_better(self) -> bool:
        return self.found[0].score.higher_is_better

    @property
    def seeds(self) -> dict[str, float]:
        """The mean over the variants, by seed."""
        names = dict.fromkeys(each.who for each in self.found if each.who != TOGETHER)
        return {name: self._mean(self.of(who=name)) for name in names}

    @property
    def together(self) -> float | None:
        """The same of the models of all seeds, where they answered as one."""
        found = self.of(who=TOGETHER)
        return self._mean(found) if found else None

    @property
    def mean(self) -> float:
        """Over seeds and variants."""
        return fmean(self.seeds.values())

    @property
    def value(self) -> float:
        """What is judged."""
        return self.mean if self.together is None else self.together

    @property
    def passed(self) -> bool | None:
        """None where nothing is expected, or what is expected is of more than these."""
        expected, spread = self.test.expected, self.test.spread + _ROUNDING
        if expected is None or not self.whole:
            return None
        return self.value >= expected - spread if self.higher_is_better else self.value <= expected + spread

    def of(self, who: str | None = None, variant: str | None = None) -> list[Scored]:
        return [each for each in self.found if who in (None, each.who) and variant in (None, each.variant)]

    @staticmethod
    def _mean(found: Sequence[Scored]) -> float:
        return fmean(each.score.value for each in found)


@dataclass(frozen=True)
class Outcome:
    """All tests of a recipe."""

    recipe: Recipe
    runs: tuple[Planned, ...]
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool | None:
        """Whether all that could be judged came out as expected; None where nothing could."""
        judged = [row.passed for row in self.rows if row.passed is not None]
        return all(judged) if judged else None


def outcome_of(recipe: Recipe, runs: Sequence[Planned], found: Sequence[Scored]) -> Outcome:
    """Scores in the order of the recipe's tests."""
    tests = {(test.name, test.metric): test for test in recipe.judged.test}
    whole = recipe.expected_of is None
    rows = [
        Row(test, tuple(each for each in found if (each.test.name, each.test.metric) == key), whole)
        for key, test in tests.items()
    ]
    return Outcome(recipe, tuple(runs), tuple(rows))


def write_results(outcome: Outcome, out: Path, folder: Path | None, machine: Mapping[str, Any], seconds: float) -> Path:
    """All of it, with the date and what it ran on; `folder` is that of the data, machine and seconds are of scoring."""
    recipe, judged = outcome.recipe, outcome.recipe.judged
    configs = [recipe.config(variant, folder) for variant in recipe.variants or (None,)]
    runs = [
        {"variant": run.variant, "seed": run.seed, "folder": str(run.folder.relative_to(out)), **facts_of(run.folder)}
        for run in outcome.runs
    ]
    content = {
        "recipe": recipe.name,
        "about": judged.about,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "passed": outcome.passed,
        "scored_with": {name: machine[name] for name in _MACHINE},
        "scoring_seconds": round(seconds, 1),
        "training_seconds": round(sum(run["training_seconds"] for run in runs), 1),
        "decoding": judged.decoding,
        "data": None if (place := configs[0].data.folder) is None else str(place),
        "tested_on": {name: value for config in configs for name, value in checksums(files_of_tests(config)).items()},
        "tests": [_told(row) for row in outcome.rows],
        "runs": runs,
    }
    path = out / (SOME_RESULTS if recipe.partial else RESULTS)
    keep(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def _told(row: Row) -> dict[str, Any]:
    variants = dict.fromkeys(each.variant for each in row.found if each.variant is not None)
    by_variant = {variant: {each.who: each.score.value for each in row.of(variant=variant)} for variant in variants}
    return {
        **row.test.model_dump(mode="json", include={"name", "metric", "expected", "spread"}),
        **row.test.model_dump(mode="json", include={"reference", "reference_source"}, exclude_none=True),
        "passed": row.passed,
        "value": row.value,
        "mean": row.mean,
        "seeds": row.seeds,
        **({} if row.together is None else {TOGETHER: row.together}),
        **({"variants": by_variant} if by_variant else {}),
        "higher_is_better": row.higher_is_better,
        "signatures": list(dict.fromkeys(each.score.signature for each in row.found)),
        "lines": sum(each.lines for each in row.of(who=row.found[0].who)),
        "cut": sum(each.cut for each in row.found),
    }
