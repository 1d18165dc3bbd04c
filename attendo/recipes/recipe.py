"""Recipes: run files with a table [reproduce], where they lie, which trainings they ask for and on which files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attendo.data.config import DataConfig
from attendo.errors import DataError, UsageError
from attendo.recipes.files import list_test_corpora, list_test_files, list_training_files, read_complete_pairs
from attendo.runs.config import RunConfig, name_file_in_errors, read_run_file, toml_literal
from attendo.runs.recipe_config import (
    VARIANT_PLACEHOLDER,
    Expectation,
    Reproduce,
    has_placeholders,
    make_test_corpus,
    unknown_variant_error,
    variant_names,
)
from attendo.settings import suggest_name

DEFAULT_DATA_FOLDER = Path("data")  # where data sets lie unless said otherwise
_MAX_NAMED_FILES = 8  # missing files that are named one by one

_PACKAGE = Path(__file__).parents[1]
_RECIPE_FOLDERS = (_PACKAGE / "recipes" / "run_files", _PACKAGE.parent / "recipes")  # of a wheel, and of a checkout


@dataclass(frozen=True)
class PlannedRun:
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
    criteria: Reproduce
    seeds: tuple[int, ...]
    variants: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def expected_scope(self) -> str | None:
        """What the numbers that are expected are of, where less than that is wanted; they judge nothing then."""
        if set(self.variants) != set(self.criteria.variants):
            return f"the mean of {len(self.criteria.variants)} variants"
        if self.criteria.ensemble and len(self.seeds) < len(self.criteria.seeds):
            return f"that of {len(self.criteria.seeds)} networks together"
        return None

    @property
    def is_partial(self) -> bool:
        """Whether some of its own seeds or variants are left out."""
        return not ({*self.criteria.seeds} <= {*self.seeds} and {*self.criteria.variants} <= {*self.variants})

    def select(self, seeds: Sequence[int] = (), variants: Sequence[str] = ()) -> "Recipe":
        """Some seeds or variants instead of all; seeds may be others than the recipe's own."""
        known = list(self.criteria.variants)
        if unknown := [name for name in variants if name not in known]:
            raise unknown_variant_error(unknown[0], known, self.name)
        return replace(self, seeds=tuple(seeds) or self.seeds, variants=tuple(variants) or self.variants)

    def plan(self, out: Path) -> list[PlannedRun]:
        """The trainings, those of a variant together, each with a folder below `out`."""
        return [
            PlannedRun(seed, variant, (out if variant is None else out / variant) / f"seed-{seed}")
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
        place = given or DEFAULT_DATA_FOLDER
        named = place / (self.criteria.dataset or "")
        return named if named.is_dir() else place

    def check_files(self, folder: Path | None) -> None:
        """All files of all variants must be there and their tests whole, before hours are spent on some of them."""
        configs = [self.config(variant, folder) for variant in self.variants or (None,)]
        files = [
            path
            for each in configs
            for path in (*list_training_files(each.data).values(), *list_test_files(each).values())
        ]
        if missing := [path for path in dict.fromkeys(files) if not path.is_file()]:
            named = ", ".join(map(str, missing[:_MAX_NAMED_FILES]))
            more = f" and {len(missing) - _MAX_NAMED_FILES} more" if len(missing) > _MAX_NAMED_FILES else ""
            raise DataError("recipe_files_missing", recipe=self.name, files=named, more=more)
        for corpus in dict.fromkeys(corpus for each in configs for corpus in list_test_corpora(each)):
            for _ in read_complete_pairs(corpus):
                pass


def find_recipe(name: str) -> Recipe:
    """By the path of a run file, or by the name of a recipe that comes with attendo."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_recipe(path)
    known = list_recipes()
    if name not in known:
        raise UsageError(
            "unknown_recipe",
            name=name,
            suggestion=suggest_name(name, list(known)),
            known=", ".join(known) or "none, there are no recipes here",
        )
    return read_recipe(known[name])


def list_recipes() -> dict[str, Path]:
    """The recipes that come with attendo, by name."""
    paths = [path for shelf in _RECIPE_FOLDERS for path in sorted(shelf.glob("*.toml"))]
    return {path.stem: path for path in paths if "reproduce" in read_run_file(path)}


def read_recipe(path: Path) -> Recipe:
    """A run file that says how it is judged, checked."""
    values = read_run_file(path)
    if "reproduce" not in values:
        raise UsageError("reproduce_table_missing", path=path)
    with name_file_in_errors(path):
        if (names := variant_names(values)) and not has_placeholders(values):
            raise UsageError("variants_without_placeholder", placeholder=VARIANT_PLACEHOLDER)
        chosen = [{"variant": name} for name in names] or [{}]
        judged, *_ = [
            _check_recipe(RunConfig(**values, **variant)) for variant in chosen
        ]  # each may have its own settings
    return Recipe(path, values, judged, judged.seeds, judged.variants)


def _check_recipe(config: RunConfig) -> Reproduce:
    """How it is judged, which must go with how it is trained."""
    assert config.reproduce is not None, "it is in the values"
    _check_ensemble(config.reproduce, config.data)
    for test in config.reproduce.test:
        _check_test(test, config)
    return config.reproduce


def _check_ensemble(criteria: Reproduce, data: DataConfig) -> None:
    if criteria.ensemble and data.training and not data.validation:
        raise UsageError("ensemble_without_validation_files")


def _check_test(test: Expectation, config: RunConfig) -> None:
    make_test_corpus(test, config.data)
    if test.parts and config.reproduce is not None and config.reproduce.variants:
        raise UsageError("test_parts_with_variants", test=test.name)
    if test.uses_run_validation and config.train.final == "average":
        raise UsageError("averaged_metric_unavailable", test=test.name, metric=test.metric)
