"""Scores the tests of a recipe, for each model or for an ensemble of all seeds of a variant."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.bucketing import split_by_length
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

ENSEMBLE = "together"  # the ensemble of all seeds
_CHUNK_TEXTS = 2048  # texts of similar length per call

TextPair = tuple[str, str]


@dataclass(frozen=True)
class ScoringStarted:
    """Event: scoring of a test begins."""

    test: str
    models: str


@dataclass(frozen=True)
class TruncatedOutputs:
    """Outputs that reached the length limit."""

    test: str
    models: str
    truncated: int
    lines: int


@dataclass(frozen=True)
class OutputsNotSaved:
    """Outputs could not be written. Their scores are still computed."""

    reason: str


@dataclass(frozen=True)
class RecipeScore:
    """A score of one test."""

    test: Expectation
    variant: str | None  # or the part of the test
    model_label: str  # the seed, or `ENSEMBLE`
    score: Score
    lines: int  # 0 if read from the run's own validation
    truncated: int = 0  # truncated outputs


def score_tests(
    recipe: Recipe, runs: Sequence[PlannedRun], folder: Path | None, device: str
) -> Iterator[ScoringStarted | TruncatedOutputs | OutputsNotSaved | RecipeScore]:
    """Score every test of every run, in finished run folders. Outputs are saved there in `tests/`."""
    for variant in dict.fromkeys(run.variant for run in runs):
        config = recipe.config(variant, folder)
        own = [run for run in runs if run.variant == variant]
        for run in own:
            yield from _validation_scores(run, config)
            if _group_tests_by_text(config):
                alone = (variant, str(run.seed), run.name)
                yield from _decode_and_score(load(run.folder / "model", device), config, run.folder, alone)
        if recipe.criteria.ensemble and len(own) > 1:
            # Load the models again: a model that has generated keeps its CUDA graphs, gigabytes on a GPU.
            first, *others = (load(run.folder / "model", device) for run in own)
            labels = (variant, ENSEMBLE, ENSEMBLE if variant is None else f"{variant}, {ENSEMBLE}")
            yield from _decode_and_score(first.ensemble(others), config, own[0].folder.parent, labels)


def _validation_scores(run: PlannedRun, config: RunConfig) -> Iterator[RecipeScore]:
    """Yield the scores that the run measured during training."""
    for test in _list_tests(config):
        if test.uses_run_validation:
            loss = read_validation_loss(run.folder, test, config)
            value = loss if test.metric == "loss" else math.exp(loss)
            signature = f"{test.metric}|of:validation|tok:own|{VERSION_SIGNATURE}"
            yield RecipeScore(test, run.variant, str(run.seed), Score(test.metric, value, signature, False), 0)


def _decode_and_score(
    model: TextModel, config: RunConfig, folder: Path, labels: tuple[str | None, str, str]
) -> Iterator[ScoringStarted | TruncatedOutputs | OutputsNotSaved | RecipeScore]:
    """Decode each text once and score its tests. `labels` are the variant, the model label and a display name."""
    assert config.reproduce is not None, "recipes have it"
    variant, model_label, name = labels
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
            yield RecipeScore(test, part or variant, model_label, value, len(pairs), cut)


def _list_texts(config: RunConfig) -> Iterator[tuple[str, str | None, list[Expectation]]]:
    """Yield the texts to decode: name, part of the test, and the tests that use it."""
    for name, tests in _group_tests_by_text(config).items():
        for part in tests[0].parts or (None,):
            yield name if part is None else f"{name}-{part}", part, tests


def _group_tests_by_text(config: RunConfig) -> dict[str, list[Expectation]]:
    """Return the tests that need decoding, by name. Tests of the same name use the same text."""
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
    """Return outputs in source order, and the number of truncated ones."""
    texts, cut = [""] * len(sources), 0
    for group in split_by_length(sources, _CHUNK_TEXTS):
        for number, result in zip(group, model.generate([sources[each] for each in group], **options), strict=True):
            texts[number] = result.text
            cut += result.cut
    return texts, cut


def _save_outputs(outputs: Sequence[str], path: Path) -> Iterator[OutputsNotSaved]:
    """Write outputs for inspection. Line breaks in an output become spaces, to keep one output per line."""
    try:
        write_text_file(path, "".join(" ".join(output.splitlines()) + "\n" for output in outputs))
    except AttendoError as error:
        yield OutputsNotSaved(str(error))


def _list_tests(config: RunConfig) -> Sequence[Expectation]:
    return () if config.reproduce is None else config.reproduce.test
