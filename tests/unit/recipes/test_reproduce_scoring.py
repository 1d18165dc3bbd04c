"""Scoring the tests of a recipe: single models, ensembles and output files."""

import json
import math
from pathlib import Path

import pytest
from error_codes import has_code, message
from full_disk import room_for
from tiny import SOURCES, TARGETS, tiny_model

from attendo.errors import DataError, UsageError
from attendo.metrics import compute_likelihoods, perplexity, score
from attendo.recipes.recipe import PlannedRun, Recipe, read_recipe
from attendo.recipes.results import make_outcome
from attendo.recipes.scoring import (
    ENSEMBLE,
    OutputsNotSaved,
    RecipeScore,
    ScoringStarted,
    TruncatedOutputs,
    score_tests,
)

RECIPE = """
[data]
source = "train.en"
target = "train.zh"
valid_source = "test.en"
valid_target = "test.zh"
[reproduce]
about = "pairs"
seeds = [1, 2]
[reproduce.generate]
max_length_extra = 3
max_length_factor = 0.0
[[reproduce.test]]
name = "test"
source = "test.en"
target = "test.zh"
metric = "chrf"
[[reproduce.test]]
name = "test"
source = "test.en"
target = "test.zh"
metric = "perplexity"
"""

PARTS = """source = "{part}.en"
target = "{part}.zh"
parts = ["one", "two"]"""

VALIDATION_TESTS = """
[[reproduce.test]]
name = "valid"
metric = "perplexity"
[[reproduce.test]]
name = "valid"
metric = "loss"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe with a model for each seed and metrics of two steps."""
    (tmp_path / "mine.toml").write_text(RECIPE, "utf-8")
    # The longest line comes first: outputs decoded by length must return in this order.
    for name, texts in (("test.en", SOURCES[::-1]), ("test.zh", TARGETS[::-1])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), "utf-8")
    for seed in (1, 2):
        model = tiny_model(seed)
        model.scores.update({"step": 4, "best_step": 2})
        model.save(tmp_path / f"seed-{seed}" / "model")
        step = {"kind": "step", "loss": 1.0, "lr": 1.0, "tokens": 1, "seconds": 1.0}
        validations = [{"kind": "validation", "step": 2, "loss": 0.5, "best": True}]
        validations += [{"kind": "validation", "step": 4, "loss": 0.75}]
        lines = [{**step, "step": 2}, validations[0], {**step, "step": 4}, validations[1]]
        metrics = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"seed-{seed}" / "metrics.jsonl").write_text(metrics, "utf-8")
    return read_recipe(tmp_path / "mine.toml")


def score_recipe(recipe: Recipe) -> tuple[list[RecipeScore], list[ScoringStarted | TruncatedOutputs | OutputsNotSaved]]:
    folder = recipe.path.parent
    reports = list(score_tests(recipe, recipe.plan(folder), folder, "cpu"))
    return [each for each in reports if isinstance(each, RecipeScore)], [
        each for each in reports if not isinstance(each, RecipeScore)
    ]


def change_recipe(recipe: Recipe, before: str, after: str) -> Recipe:
    recipe.path.write_text(recipe.path.read_text("utf-8").replace(before, after), "utf-8")
    return read_recipe(recipe.path)


def test_scores_match_the_library_and_outputs_are_in_order(recipe: Recipe) -> None:
    scores, events = score_recipe(recipe)
    model, sources, references = tiny_model(2), SOURCES[::-1], TARGETS[::-1]
    results = model.generate(sources, max_length_factor=0.0, max_length_extra=3)
    outputs = [result.text for result in results]
    assert len(set(outputs)) > 1, "otherwise the order is not tested"
    outputs_written = (recipe.path.parent / "seed-2" / "tests" / "test.txt").read_text("utf-8")
    assert outputs_written == "".join(f"{output}\n" for output in outputs)
    values = {each.test.metric: each.score for each in scores if each.model_label == "2"}
    assert values["chrf"] == score("chrf", outputs, references)
    assert values["perplexity"] == perplexity("perplexity", compute_likelihoods(model, sources, references)).score
    assert {each.lines for each in scores} == {len(SOURCES)}
    cut = sum(result.cut for result in results)
    assert cut
    assert [each for each in events if not isinstance(each, OutputsNotSaved) and each.models == "seed 2"] == [
        ScoringStarted("test", "seed 2"),
        TruncatedOutputs("test", "seed 2", cut, len(SOURCES)),
    ]


def test_an_ensemble_uses_all_seeds(recipe: Recipe) -> None:
    scores, _ = score_recipe(change_recipe(recipe, "seeds =", "ensemble = true\nseeds ="))
    values = {each.model_label: each.score.value for each in scores if each.test.metric == "perplexity"}
    both = tiny_model(1).ensemble([tiny_model(2)])
    expected = perplexity("perplexity", compute_likelihoods(both, SOURCES, TARGETS)).score.value
    assert values.keys() == {"1", "2", ENSEMBLE}
    assert values[ENSEMBLE] == pytest.approx(expected)
    assert values[ENSEMBLE] not in (pytest.approx(values["1"]), pytest.approx(values["2"]))


def test_one_seed_has_no_ensemble(recipe: Recipe) -> None:
    scores, _ = score_recipe(change_recipe(recipe, "seeds =", "ensemble = true\nseeds =").select(seeds=[2]))
    assert {each.model_label for each in scores} == {"2"}


@pytest.mark.parametrize(("final", "loss"), [("best", 0.5), ("last", 0.75)])
def test_loss_is_that_of_the_saved_weights(recipe: Recipe, final: str, loss: float) -> None:
    text = f"{RECIPE}{VALIDATION_TESTS}[train]\nfinal = '{final}'\n"
    scores, _ = score_recipe(change_recipe(recipe, RECIPE, text))
    values = {each.test.metric: each.score.value for each in scores if each.test.name == "valid"}
    assert values == {"loss": loss, "perplexity": math.exp(loss)}


def test_a_test_with_a_bad_line_is_rejected(recipe: Recipe) -> None:
    path = recipe.path.parent / "test.en"
    path.write_bytes(path.read_bytes().replace(b"cat", b"c\xff", 1))
    with pytest.raises(DataError, check=has_code("test_row_invalid", row=1, fault="source not UTF-8")):
        score_recipe(recipe)


@pytest.mark.parametrize("side", [0, 1])
def test_a_test_line_without_text_is_rejected(recipe: Recipe, side: int) -> None:
    """An empty output would count as correct for it."""
    for number, name in enumerate(("test.en", "test.zh")):
        path = recipe.path.parent / name
        path.write_text(path.read_text("utf-8") + (" \n" if number == side else "text\n"), "utf-8")
    with pytest.raises(DataError, check=has_code("test_row_invalid", row=len(SOURCES) + 1, fault="empty")):
        score_recipe(recipe)


def test_unwritable_outputs_are_scored_and_reported(recipe: Recipe) -> None:
    before, _ = score_recipe(recipe)
    path = recipe.path.parent / "seed-1" / "tests" / "test.txt"
    text = path.read_text("utf-8")
    with room_for(10):
        after, events = score_recipe(recipe)
    assert after == before
    faults = [each.reason for each in events if isinstance(each, OutputsNotSaved)]
    assert faults[0] == message("disk_full", path=path, size=len(text.encode()))
    assert (path.read_text("utf-8"), list(path.parent.iterdir())) == (text, [path])
    path.unlink()
    path.mkdir()
    _, events = score_recipe(recipe)
    assert OutputsNotSaved(message("reproduce_file_not_writable", path=path, reason="Is a directory")) in events


def test_a_run_is_named_by_variant_and_seed(recipe: Recipe) -> None:
    assert [run.name for run in recipe.plan(Path())] == ["seed 1", "seed 2"]
    assert PlannedRun(3, "bul", Path()).name == "bul, seed 3"


def test_the_score_of_parts_is_their_mean(recipe: Recipe) -> None:
    folder = recipe.path.parent
    for part, line in (("one", 0), ("two", 2)):
        (folder / f"{part}.en").write_text(f"{SOURCES[line]}\n", "utf-8")
        (folder / f"{part}.zh").write_text(f"{TARGETS[line]}\n", "utf-8")
    recipe = change_recipe(recipe, 'source = "test.en"\ntarget = "test.zh"', PARTS)
    scores, _ = score_recipe(recipe)
    of_two = [each for each in scores if each.model_label == "2" and each.test.metric == "perplexity"]
    model = tiny_model(2)
    expected = [
        perplexity("perplexity", compute_likelihoods(model, [SOURCES[line]], [TARGETS[line]])).score.value
        for line in (0, 2)
    ]
    assert {each.variant: each.score.value for each in of_two} == dict(zip(("one", "two"), expected, strict=True))
    assert (folder / "seed-2" / "tests" / "test-one.txt").is_file()
    row = make_outcome(recipe, recipe.plan(folder), scores).rows[1]
    assert row.seeds["2"] == pytest.approx(sum(expected) / 2)
    (folder / "two.zh").unlink()
    with pytest.raises(DataError, check=has_code("recipe_files_missing")):
        recipe.check_files(folder)


def test_parts_need_a_placeholder_in_the_file_names(recipe: Recipe) -> None:
    with pytest.raises(UsageError, check=has_code("run_file_invalid")):
        change_recipe(recipe, "metric =", 'parts = ["one"]\nmetric =')
