"""Recipes: run files with a table [reproduce], their locations, planned runs and files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attendo.errors import DataError, UsageError
from attendo.recipes.files import list_test_corpora, list_test_files, list_training_files, read_complete_pairs
from attendo.runs.config import RunConfig, name_file_in_errors, read_run_file, toml_literal
from attendo.runs.recipe_config import (
    VARIANT_PLACEHOLDER,
    Reproduce,
    has_placeholders,
    make_test_corpus,
    unknown_variant_error,
    variant_names,
)
from attendo.settings import suggest_name

DEFAULT_DATA_FOLDER = Path("data")  # default folder of the data sets
_MAX_NAMED_FILES = 8  # maximum number of missing files listed in an error

_PACKAGE = Path(__file__).parents[1]
_RECIPE_FOLDERS = (_PACKAGE / "recipes" / "run_files", _PACKAGE.parent / "recipes")  # in a wheel, and in a checkout


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a recipe."""

    seed: int
    variant: str | None
    folder: Path  # run folder
    start_from: Path | None = None  # model folder of the run of another recipe

    @property
    def name(self) -> str:
        return f"seed {self.seed}" if self.variant is None else f"{self.variant}, seed {self.seed}"

    @property
    def changes(self) -> list[str]:
        """The --set options for `attendo train`."""
        variant = [] if self.variant is None else [f"variant={toml_literal(self.variant)}"]
        start = [] if self.start_from is None else [f"start_from={toml_literal(str(self.start_from))}"]
        return [f"seed={self.seed}", *variant, *start]


@dataclass(frozen=True)
class Recipe:
    """A run file with its selected seeds and variants."""

    path: Path
    values: dict[str, Any]  # as in the file
    criteria: Reproduce
    seeds: tuple[int, ...]
    variants: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def full_scope(self) -> str | None:
        """Scope of the expected numbers if only a part of it is selected, else None. A part gets no verdict."""
        if set(self.variants) != set(self.criteria.variants):
            return f"the mean of {len(self.criteria.variants)} variants"
        if self.criteria.ensemble and len(self.seeds) < len(self.criteria.seeds):
            return f"an ensemble of {len(self.criteria.seeds)} networks"
        return None

    @property
    def is_partial(self) -> bool:
        """Whether some of the recipe's seeds or variants are not selected."""
        return not ({*self.criteria.seeds} <= {*self.seeds} and {*self.criteria.variants} <= {*self.variants})

    def select(self, seeds: Sequence[int] = (), variants: Sequence[str] = ()) -> "Recipe":
        """Select seeds or variants. Seeds may differ from the recipe's own."""
        known = list(self.criteria.variants)
        if unknown := [name for name in variants if name not in known]:
            raise unknown_variant_error(unknown[0], known, self.name)
        return replace(self, seeds=tuple(seeds) or self.seeds, variants=tuple(variants) or self.variants)

    def plan(self, out: Path) -> list[PlannedRun]:
        """Return the training runs, grouped by variant, each with a folder in `out`."""
        start = self.find_start()
        starts = {} if start is None else {run.seed: run.folder / "model" for run in start.plan(out / "start")}
        return [
            PlannedRun(seed, variant, (out if variant is None else out / variant) / f"seed-{seed}", starts.get(seed))
            for variant in self.variants or (None,)
            for seed in self.seeds
        ]

    def find_start(self) -> "Recipe | None":
        """Return the recipe whose models the runs start from, with the same seeds."""
        if self.criteria.start_recipe is None:
            return None
        path = self.path.with_name(f"{self.criteria.start_recipe}.toml")
        start = read_recipe(path) if path.is_file() else find_recipe(self.criteria.start_recipe)
        if start.variants:
            raise UsageError("start_recipe_unsuitable", recipe=self.name, start=start.name)
        return start.select(self.seeds)

    def list_starts(self) -> "list[Recipe]":
        """Return the recipe that the runs start from, the recipe that this one starts from, and so on."""
        found: list[Recipe] = []
        start = self.find_start()
        while start is not None:
            found.append(start)
            if start.path in [self.path, *(each.path for each in found[:-1])]:
                raise UsageError("start_recipe_circular", recipe=self.name, start=start.name)
            start = start.find_start()
        return found

    def config(self, variant: str | None, folder: Path | None = None) -> RunConfig:
        """Return the settings for a variant, with its training and test files in `folder`."""
        values = self.values if variant is None else {**self.values, "variant": variant}
        if folder is not None:
            values = {**values, "data": {**values["data"], "folder": folder}}
        return RunConfig(**values)

    def data_folder(self, given: Path | None) -> Path | None:
        """Return the data folder: the given one, or its subfolder with the name of the data set."""
        if given is None and "folder" in self.values["data"]:
            return None
        folder = given or DEFAULT_DATA_FOLDER
        named = folder / (self.criteria.dataset or "")
        return named if named.is_dir() else folder

    def check_files(self, folder: Path | None) -> None:
        """Check that all files of all variants exist and the tests are complete, before hours of training."""
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
    """Return a recipe by the path of a run file, or by the name of a built-in recipe."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_recipe(path)
    known = list_recipes()
    if name not in known:
        raise UsageError(
            "unknown_recipe",
            name=name,
            suggestion=suggest_name(name, list(known)),
            known=", ".join(known) or "none (there are no recipes)",
        )
    return read_recipe(known[name])


def list_recipes() -> dict[str, Path]:
    """Return the paths of the built-in recipes, by name."""
    paths = [path for folder in _RECIPE_FOLDERS for path in sorted(folder.glob("*.toml"))]
    return {path.stem: path for path in paths if "reproduce" in read_run_file(path)}


def read_recipe(path: Path) -> Recipe:
    """Read and validate a run file with a table [reproduce]."""
    values = read_run_file(path)
    if "reproduce" not in values:
        raise UsageError("reproduce_table_missing", path=path)
    with name_file_in_errors(path):
        if (names := variant_names(values)) and not has_placeholders(values):
            raise UsageError("variants_without_placeholder", placeholder=VARIANT_PLACEHOLDER)
        chosen = [{"variant": name} for name in names] or [{}]
        judged, *_ = [
            _check_recipe(RunConfig(**values, **variant)) for variant in chosen
        ]  # each variant may have its own settings
    return Recipe(path, values, judged, judged.seeds, judged.variants)


def _check_recipe(config: RunConfig) -> Reproduce:
    """Check the evaluation settings against the training settings, and return them."""
    assert config.reproduce is not None, "it is in the values"
    if config.reproduce.ensemble and config.data.training and not config.data.validation:
        raise UsageError("ensemble_without_validation_files")
    for test in config.reproduce.test:
        make_test_corpus(test, config.data)
        if test.parts and config.reproduce.variants:
            raise UsageError("test_parts_with_variants", test=test.name)
        if test.uses_run_validation and config.train.final == "average":
            raise UsageError("averaged_metric_unavailable", test=test.name, metric=test.metric)
    return config.reproduce
