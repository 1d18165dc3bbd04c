"""Recipes: run files with a table [reproduce], where they lie, which trainings they ask for and on which files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attendo.data.config import DataConfig
from attendo.errors import DataError, UsageError
from attendo.recipes.files import corpora_of_tests, files_of_tests, learned_from, whole_pairs
from attendo.runs.config import RunConfig, mistakes_in, read_run_file, toml_literal
from attendo.runs.recipe_config import (
    PLACE,
    Expectation,
    Reproduce,
    corpus_of,
    has_places,
    unknown_variant,
    variants_of,
)
from attendo.settings import nearest

DATA = Path("data")  # where data sets lie unless said otherwise
_NAMED = 8  # missing files that are named one by one

_PACKAGE = Path(__file__).parents[1]
_SHELVES = (_PACKAGE / "recipes" / "run_files", _PACKAGE.parent / "recipes")  # of a wheel, and of a checkout


@dataclass(frozen=True)
class Planned:
    """One training."""

    seed: int
    variant: str | None
    folder: Path  # of its run

    @property
    def name(self) -> str:
        return f"seed {self.seed}" if self.variant is None else f"{self.variant}, seed {self.seed}"

    @property
    def changes(self) -> list[str]:
        """What `attendo train` is to --set."""
        variant = [] if self.variant is None else [f"variant={toml_literal(self.variant)}"]
        return [f"seed={self.seed}", *variant]


@dataclass(frozen=True)
class Recipe:
    """A run file, and those of its seeds and variants that are wanted."""

    path: Path
    values: dict[str, Any]  # as the file has them
    judged: Reproduce
    seeds: tuple[int, ...]
    variants: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def expected_of(self) -> str | None:
        """What the numbers that are expected are of, where less than that is wanted; they judge nothing then."""
        if set(self.variants) != set(self.judged.variants):
            return f"the mean of {len(self.judged.variants)} variants"
        if self.judged.ensemble and len(self.seeds) < len(self.judged.seeds):
            return f"that of {len(self.judged.seeds)} networks together"
        return None

    @property
    def partial(self) -> bool:
        """Whether some of its own seeds or variants are left out."""
        return not ({*self.judged.seeds} <= {*self.seeds} and {*self.judged.variants} <= {*self.variants})

    def choose(self, seeds: Sequence[int] = (), variants: Sequence[str] = ()) -> "Recipe":
        """Some seeds or variants instead of all; seeds may be others than the recipe's own."""
        known = list(self.judged.variants)
        if unknown := [name for name in variants if name not in known]:
            raise unknown_variant(unknown[0], known, self.name)
        return replace(self, seeds=tuple(seeds) or self.seeds, variants=tuple(variants) or self.variants)

    def plan(self, out: Path) -> list[Planned]:
        """The trainings, those of a variant together, each with a folder below `out`."""
        return [
            Planned(seed, variant, (out if variant is None else out / variant) / f"seed-{seed}")
            for variant in self.variants or (None,)
            for seed in self.seeds
        ]

    def config(self, variant: str | None, folder: Path | None = None) -> RunConfig:
        """The settings for a variant, with its files, those of the tests too, in a folder."""
        values = self.values if variant is None else {**self.values, "variant": variant}
        if folder is not None:
            values = {**values, "data": {**values["data"], "folder": folder}}
        return RunConfig(**values)

    def data_folder(self, given: Path | None) -> Path | None:
        """Where the files are: the folder given or, in it, the one that has the data set's name."""
        if given is None and "folder" in self.values["data"]:
            return None
        place = given or DATA
        named = place / (self.judged.dataset or "")
        return named if named.is_dir() else place

    def check_files(self, folder: Path | None) -> None:
        """All files of all variants must be there and their tests whole, before hours are spent on some of them."""
        configs = [self.config(variant, folder) for variant in self.variants or (None,)]
        files = [
            path for each in configs for path in (*learned_from(each.data).values(), *files_of_tests(each).values())
        ]
        if missing := [path for path in dict.fromkeys(files) if not path.is_file()]:
            named = ", ".join(map(str, missing[:_NAMED]))
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise DataError("recipe_files_missing", recipe=self.name, files=named, more=more)
        for corpus in dict.fromkeys(corpus for each in configs for corpus in corpora_of_tests(each)):
            for _ in whole_pairs(corpus):
                pass


def find_recipe(name: str) -> Recipe:
    """By the path of a run file, or by the name of a recipe that comes with attendo."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_recipe(path)
    known = recipe_paths()
    if name not in known:
        raise UsageError(
            "unknown_recipe",
            name=name,
            suggestion=nearest(name, list(known)),
            known=", ".join(known) or "none, there are no recipes here",
        )
    return read_recipe(known[name])


def recipe_paths() -> dict[str, Path]:
    """The recipes that come with attendo, by name."""
    paths = [path for shelf in _SHELVES for path in sorted(shelf.glob("*.toml"))]
    return {path.stem: path for path in paths if "reproduce" in read_run_file(path)}


def read_recipe(path: Path) -> Recipe:
    """A run file that says how it is judged, checked."""
    values = read_run_file(path)
    if "reproduce" not in values:
        raise UsageError("reproduce_table_missing", path=path)
    with mistakes_in(path):
        if (names := variants_of(values)) and not has_places(values):
            raise UsageError("variants_without_placeholder", placeholder=PLACE)
        chosen = [{"variant": name} for name in names] or [{}]
        judged, *_ = [_checked(RunConfig(**values, **variant)) for variant in chosen]  # each may have its own settings
    return Recipe(path, values, judged, judged.seeds, judged.variants)


def _checked(config: RunConfig) -> Reproduce:
    """How it is judged, which must go with how it is trained."""
    assert config.reproduce is not None, "it is in the values"
    _check_ensemble(config.reproduce, config.data)
    for test in config.reproduce.test:
        _check_test(test, config)
    return config.reproduce


def _check_ensemble(judged: Reproduce, data: DataConfig) -> None:
    if judged.ensemble and data.training and not data.validation:
        raise UsageError("ensemble_without_validation_files")


def _check_test(test: Expectation, config: RunConfig) -> None:
    corpus_of(test, config.data)
    if test.parts and config.reproduce is not None and config.reproduce.variants:
        raise UsageError("test_parts_with_variants", test=test.name)
    if test.of_validation and config.train.final == "average":
        raise UsageError("averaged_metric_unavailable", test=test.name, metric=test.metric)
