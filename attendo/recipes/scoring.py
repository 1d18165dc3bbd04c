"""The tests of a recipe, scored: what each model, or all seeds of a variant together, make of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.prepared import open_prepared
from attendo.errors import AttendoError
from attendo.metrics import PERPLEXITIES, Score, compute_likelihoods, perplexity, score
from attendo.metrics.measure import VERSION_SIGNATURE
from attendo.recipes.files import read_complete_pairs, write_text_file
from attendo.recipes.recipe import PlannedRun, Recipe
from attendo.recipes.run_state import read_validation_loss
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import Expectation, make_test_corpus
from attendo.text_model import TextModel, load

ENSEMBLE = "together"  # the models of all seeds as one
_CHUNK_TEXTS = 2048  # of like length

TextPair = tuple[str, str]


@dataclass(frozen=True)
class ScoringStarted:
    """Work that begins: which test, of which models."""

    test: str
    models: str


@dataclass(frozen=True)
class TruncatedOutputs:
    """Answers that ended at the length limit."""

    test: str
    models: str
    truncated: int
    lines: int


@dataclass(frozen=True)
class OutputsNotSaved:
    """Answers that could not be written down, and why. Their scores come all the same."""

    reason: str


@dataclass(frozen=True)
class RecipeScore:
    """A score of one test."""

    test: Expectation
    variant: str | None  # or the part of the test
    model_label: str  # the seed, or `ENSEMBLE`
    score: Score
    lines: int  # 0 where the run had scored it itself
    truncated: int = 0  # answers


def score_tests(
    recipe: Recipe, runs: Sequence[PlannedRun], folder: Path | None, device: str
) -> Iterator[ScoringStarted | TruncatedOutputs | OutputsNotSaved | RecipeScore]:
    """Every test of every run, in finished run folders; their answers stay there in `tests/`."""
    for variant in dict.fromkeys(run.variant for run in runs):
        config = recipe.config(variant, folder)
        own = [run for run in runs if run.variant == variant]
        for run in own:
            yield from _validation_scores(run, config)
            if _group_tests_by_text(config):
                alone = (variant, str(run.seed), run.name)
                yield from _decode_and_score(load(run.folder / "model", device), config, run.folder, alone)
        if recipe.criteria.ensemble and len(own) > 1:
            # Loaded again: a model that has answered keeps what it has recorded, gigabytes on a GPU.
            place, name = own[0].folder.parent, ENSEMBLE if variant is None else f"{variant}, {ENSEMBLE}"
            yield from _decode_and_score(_load_ensemble(own, device), config, place, (variant, ENSEMBLE, name))


def _load_ensemble(runs: Sequence[PlannedRun], device: str) -> TextModel:
    first, *others = (load(run.folder / "model", device) for run in runs)
    return first.ensemble(others)


def _validation_scores(run: PlannedRun, config: RunConfig) -> Iterator[RecipeScore]:
    """What the run has measured while it trained."""
    for test in _list_tests(config):
        if test.uses_run_validation:
            loss = read_validation_loss(run.folder, test, config)
            value = loss if test.metric == "loss" else math.exp(loss)
            signature = f"{test.metric}|of:validation|tok:own|{VERSION_SIGNATURE}"
            yield RecipeScore(test, run.variant, str(run.seed), Score(test.metric, value, signature, False), 0)


def _decode_and_score(
    model: TextModel, config: RunConfig, folder: Path, labels: tuple[str | None, str, str]
) -> Iterator[ScoringStarted | TruncatedOutputs | OutputsNotSaved | RecipeScore]:
    """Tests of the same text are decoded once. `of` is the variant, who answers, and both as a person says it."""
    assert config.reproduce is not None, "recipes have it"
    variant, who, name = labels
    for text, part, tests in _list_texts(config):
        yield ScoringStarted(text, name)
        pairs = _read_pairs(tests[0] if part is None else tests[0].for_part(part), config, folder)
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        outputs, cut = None, 0
        for test in tests:
            if test.metric in PERPLEXITIES:
                value = perplexity(test.metric, compute_likelihoods(model, sources, references)).score
            else:
                if outputs is None:
                    outputs, cut = _generate_outputs(model, sources, config.reproduce.decoding)
                    yield from _save_outputs(outputs, folder / "tests" / f"{text}.txt")
                    yield from [TruncatedOutputs(text, name, cut, len(pairs))] if cut else []
                value = score(test.metric, outputs, references)
            yield RecipeScore(test, part or variant, who, value, len(pairs), cut)


def _list_texts(config: RunConfig) -> Iterator[tuple[str, str | None, list[Expectation]]]:
    """What is to be decoded: its name, the part of a test that it is, and the tests that look at it."""
    for name, tests in _group_tests_by_text(config).items():
        for part in tests[0].parts or (None,):
            yield name if part is None else f"{name}-{part}", part, tests


def _group_tests_by_text(config: RunConfig) -> dict[str, list[Expectation]]:
    """Tests that are to be decoded, by name; those of one name are of one text."""
    found: dict[str, list[Expectation]] = {}
    for test in _list_tests(config):
        if not test.uses_run_validation:
            found.setdefault(test.name, []).append(test)
    return found


def _read_pairs(test: Expectation, config: RunConfig, run_folder: Path) -> list[TextPair]:
    corpus = make_test_corpus(test, config.data)
    if corpus is None:
        return list(open_prepared(config.data.prepared or run_folder / "data").valid)
    return list(read_complete_pairs(corpus))


def _generate_outputs(model: TextModel, sources: Sequence[str], options: dict[str, Any]) -> tuple[list[str], int]:
    """In the order of the sources, and how many of them were cut; like lengths together, so that little is padded."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    texts, cut = [""] * len(sources), 0
    for first in range(0, len(order), _CHUNK_TEXTS):
        group = order[first : first + _CHUNK_TEXTS]
        for place, result in zip(group, model.generate([sources[each] for each in group], **options), strict=True):
            texts[place] = result.text
            cut += result.cut
    return texts, cut


def _save_outputs(outputs: Sequence[str], path: Path) -> Iterator[OutputsNotSaved]:
    """For people to look at; a line break inside an answer would put all lines below it out of place."""
    try:
        write_text_file(path, "".join(" ".join(output.splitlines()) + "\n" for output in outputs))
    except AttendoError as error:
        yield OutputsNotSaved(str(error))


def _list_tests(config: RunConfig) -> Sequence[Expectation]:
    return () if config.reproduce is None else config.reproduce.test
