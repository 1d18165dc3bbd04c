"""The tests of a recipe, scored: what each model, or all seeds of a variant together, make of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.prepared import open_prepared
from attendo.errors import AttendoError
from attendo.metrics import PERPLEXITIES, Score, likelihoods, perplexity, score
from attendo.metrics.measure import VERSION
from attendo.recipes.files import keep, whole_pairs
from attendo.recipes.recipe import Planned, Recipe
from attendo.recipes.run_state import validation_loss
from attendo.runs.config import RunConfig
from attendo.runs.recipe_config import Expectation, corpus_of
from attendo.text_model import TextModel, load

TOGETHER = "together"  # the models of all seeds as one
_TEXTS_AT_ONCE = 2048  # of like length

TextPair = tuple[str, str]


@dataclass(frozen=True)
class Scoring:
    """Work that begins: which test, of which models."""

    test: str
    of: str


@dataclass(frozen=True)
class Cut:
    """Answers that ended at the length limit."""

    test: str
    of: str
    cut: int
    lines: int


@dataclass(frozen=True)
class NotKept:
    """Answers that could not be written down, and why. Their scores come all the same."""

    why: str


@dataclass(frozen=True)
class Scored:
    """A score of one test."""

    test: Expectation
    variant: str | None  # or the part of the test
    who: str  # the seed, or `TOGETHER`
    score: Score
    lines: int  # 0 where the run had scored it itself
    cut: int = 0  # answers


def score_tests(
    recipe: Recipe, runs: Sequence[Planned], folder: Path | None, device: str
) -> Iterator[Scoring | Cut | NotKept | Scored]:
    """Every test of every run, in finished run folders; their answers stay there in `tests/`."""
    for variant in dict.fromkeys(run.variant for run in runs):
        config = recipe.config(variant, folder)
        own = [run for run in runs if run.variant == variant]
        for run in own:
            yield from _told(run, config)
            if _by_text(config):
                alone = (variant, str(run.seed), run.name)
                yield from _decoded(load(run.folder / "model", device), config, run.folder, alone)
        if recipe.judged.ensemble and len(own) > 1:
            # Loaded again: a model that has answered keeps what it has recorded, gigabytes on a GPU.
            place, name = own[0].folder.parent, TOGETHER if variant is None else f"{variant}, {TOGETHER}"
            yield from _decoded(_together(own, device), config, place, (variant, TOGETHER, name))


def _together(runs: Sequence[Planned], device: str) -> TextModel:
    first, *others = (load(run.folder / "model", device) for run in runs)
    return first.ensemble(others)


def _told(run: Planned, config: RunConfig) -> Iterator[Scored]:
    """What the run has measured while it trained."""
    for test in _tests(config):
        if test.of_validation:
            loss = validation_loss(run.folder, test, config)
            value = loss if test.metric == "loss" else math.exp(loss)
            signature = f"{test.metric}|of:validation|tok:own|{VERSION}"
            yield Scored(test, run.variant, str(run.seed), Score(test.metric, value, signature, False), 0)


def _decoded(
    model: TextModel, config: RunConfig, place: Path, of: tuple[str | None, str, str]
) -> Iterator[Scoring | Cut | NotKept | Scored]:
    """Tests of the same text are decoded once. `of` is the variant, who answers, and both as a person says it."""
    assert config.reproduce is not None, "recipes have it"
    variant, who, name = of
    for text, part, tests in _texts(config):
        yield Scoring(text, name)
        pairs = _pairs(tests[0] if part is None else tests[0].of_part(part), config, place)
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        outputs, cut = None, 0
        for test in tests:
            if test.metric in PERPLEXITIES:
                value = perplexity(test.metric, likelihoods(model, sources, references)).score
            else:
                if outputs is None:
                    outputs, cut = _answers(model, sources, config.reproduce.decoding)
                    yield from _kept(outputs, place / "tests" / f"{text}.txt")
                    yield from [Cut(text, name, cut, len(pairs))] if cut else []
                value = score(test.metric, outputs, references)
            yield Scored(test, part or variant, who, value, len(pairs), cut)


def _texts(config: RunConfig) -> Iterator[tuple[str, str | None, list[Expectation]]]:
    """What is to be decoded: its name, the part of a test that it is, and the tests that look at it."""
    for name, tests in _by_text(config).items():
        for part in tests[0].parts or (None,):
            yield name if part is None else f"{name}-{part}", part, tests


def _by_text(config: RunConfig) -> dict[str, list[Expectation]]:
    """Tests that are to be decoded, by name; those of one name are of one text."""
    found: dict[str, list[Expectation]] = {}
    for test in _tests(config):
        if not test.of_validation:
            found.setdefault(test.name, []).append(test)
    return found


def _pairs(test: Expectation, config: RunConfig, place: Path) -> list[TextPair]:
    corpus = corpus_of(test, config.data)
    if corpus is None:
        return list(open_prepared(config.data.prepared or place / "data").valid)
    return list(whole_pairs(corpus))


def _answers(model: TextModel, sources: Sequence[str], options: dict[str, Any]) -> tuple[list[str], int]:
    """In the order of the sources, and how many of them were cut; like lengths together, so that little is padded."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    texts, cut = [""] * len(sources), 0
    for first in range(0, len(order), _TEXTS_AT_ONCE):
        group = order[first : first + _TEXTS_AT_ONCE]
        for place, result in zip(group, model.generate([sources[each] for each in group], **options), strict=True):
            texts[place] = result.text
            cut += result.cut
    return texts, cut


def _kept(outputs: Sequence[str], path: Path) -> Iterator[NotKept]:
    """For people to look at; a line break inside an answer would put all lines below it out of place."""
    try:
        keep(path, "".join(" ".join(output.splitlines()) + "\n" for output in outputs))
    except AttendoError as error:
        yield NotKept(str(error))


def _tests(config: RunConfig) -> Sequence[Expectation]:
    return () if config.reproduce is None else config.reproduce.test
