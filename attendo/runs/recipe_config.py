"""How a recipe is evaluated: the table [reproduce] of a run file, and the variants of one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from attendo.data.config import TEXT_FILE_SETTINGS, CorpusConfig, DataConfig
from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.metrics import METRICS, PERPLEXITIES
from attendo.settings import Settings, suggest_name

VARIANT_PLACEHOLDER = "{variant}"  # in file names, replaced by the name of a variant
PART_PLACEHOLDER = "{part}"  # in file names of a test, replaced by the name of a part
VARIANT_TABLES = ("tokenizer", "model", "train", "generation")  # tables that may differ between variants
VALIDATION_METRICS = ("loss", "perplexity")  # read from the run's own validation if a test names no files

Seed = Annotated[int, Field(ge=0, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # also used as file or folder name


class Expectation(Settings):
    """A score of a test set, and its expected value."""

    name: Name = Field(description="name of the test set; tests of the same name use the same text")
    source: Path | None = Field(None, description="source text; without any file, the run's validation pairs")
    target: Path | None = Field(None, description="target text, aligned with source line by line")
    file: Path | None = Field(
        None, description="instead of source and target: a .tsv or .jsonl file, with the fields of [data]"
    )
    tag: str | None = Field(
        None, description="tag of the test files, as in [data]; default: the tag of the validation files"
    )
    parts: tuple[Name, ...] = Field(
        (), description="one text for each; its name replaces `{part}` in file names and tag; the score is the mean"
    )
    metric: str = Field(description="a metric of attendo evaluate, loss or perplexity")
    expected: float | None = Field(
        None, description="measured value, the mean over seeds; without it the test has no verdict"
    )
    spread: NotNegative = Field(
        0.0, description="allowed deviation from expected in the worse direction, from the spread over seeds"
    )
    reference: float | None = Field(None, description="a published number for comparison")
    reference_source: str | None = Field(None, description="source of the published number")

    @property
    def files(self) -> tuple[Path | None, ...]:
        return (self.source, self.target, self.file)

    def for_part(self, part: str) -> "Expectation":
        """Return the expectation for one part."""
        named = {name: getattr(self, name) for name in ("source", "target", "file", "tag")}
        return self.replace(**_fill_placeholders(named, PART_PLACEHOLDER, part), parts=())

    def split_parts(self) -> dict[str, "Expectation"]:
        """Return the expectation for each part by the name of its text, or itself if it has no parts."""
        return {f"{self.name}-{part}": self.for_part(part) for part in self.parts} or {self.name: self}

    @property
    def has_files(self) -> bool:
        return any(self.files)

    @property
    def uses_run_validation(self) -> bool:
        """Whether the score is read from the run's own validations, without decoding."""
        return self.metric in VALIDATION_METRICS and not self.has_files

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.metric not in (known := [*METRICS, *PERPLEXITIES, "loss"]):
            raise UsageError(
                "test_metric_unknown", test=self.name, metric=self.metric, suggestion=suggest_name(self.metric, known)
            )
        if (self.source is None) != (self.target is None) or (self.file is not None and self.source is not None):
            raise UsageError("test_files_incomplete", test=self.name)
        if bool(self.parts) != any(PART_PLACEHOLDER in str(path) for path in self.files):
            raise UsageError("test_parts_without_placeholder", test=self.name, placeholder=PART_PLACEHOLDER)
        if self.metric == "loss" and self.has_files:
            raise UsageError("test_loss_with_files", test=self.name)
        if self.spread and self.expected is None:
            raise UsageError("test_spread_without_expected", test=self.name)
        if self.reference_source is not None and self.reference is None:
            raise UsageError("test_reference_missing", test=self.name)
        return self


class Reproduce(Settings):
    """How a recipe is evaluated. Training ignores it."""

    about: str = Field(description="the recipe in one sentence")
    dataset: str | None = Field(None, description="name of the folder in docs/data.md; --data may be its parent folder")
    seeds: tuple[Seed, ...] = Field((1,), description="one training run per seed")
    variants: tuple[Name, ...] = Field(
        (), description="one training run per variant; its name replaces `{variant}` in file names; scores are the mean"
    )
    start_recipe: Name | None = Field(
        None, description="another recipe; each run starts from its model of the same seed, which is trained first"
    )
    ensemble: bool = Field(False, description="evaluate the models of all seeds as an ensemble; needs validation files")
    generate: GenerationConfig = Field(
        GenerationConfig(), description="decoding options of the tests, as in attendo generate"
    )
    test: tuple[Expectation, ...] = Field(description="metrics and their expected values")

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding options that are set. The model's defaults apply to the rest."""
        return self.generate.model_dump(exclude_unset=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, values in (("seeds", self.seeds), ("variants", self.variants)):
            if len(set(values)) < len(values):
                raise UsageError("reproduce_list_duplicate", setting=name)
        for name, number in (("seeds", len(self.seeds)), ("test", len(self.test))):
            if not number:
                raise UsageError("reproduce_list_empty", setting=name)
        if self.start_recipe is not None and self.variants:
            raise UsageError("start_recipe_with_variants", recipe=self.start_recipe)
        if self.ensemble and len(self.seeds) == 1:
            raise UsageError("ensemble_of_one_seed")
        if self.decoding and all(test.metric in (*PERPLEXITIES, "loss") for test in self.test):
            raise UsageError("generate_without_decoded_tests")
        self._check_tests()
        return self

    def _check_tests(self) -> None:
        scored = [(test.name, test.metric) for test in self.test]
        if twice := [name for name, metric in scored if scored.count((name, metric)) > 1]:
            raise UsageError("test_metric_duplicate", test=twice[0])
        for test in self.test:
            texts = (test.files, test.tag, test.parts)
            if any(other.name == test.name and (other.files, other.tag, other.parts) != texts for other in self.test):
                raise UsageError("test_name_ambiguous", test=test.name)
            if self.ensemble and not test.has_files:
                raise UsageError("ensemble_test_without_files", test=test.name)


def apply_variant(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a run file with `variant` filled in. Raise `UsageError` for a mistake."""
    values = apply_variant_settings(values)
    names = variant_names(values)
    rest = {key: value for key, value in values.items() if key not in ("variant", "variants")}
    if values.get("variant") is None:
        if has_placeholders(values):
            known = f": {', '.join(names)}" if names else ""
            raise UsageError("variant_missing", example=(names or ["NAME"])[0], known=known)
        return rest
    variant = str(values["variant"])
    if not has_placeholders(values):
        raise UsageError("variant_without_effect", variant=variant, placeholder=VARIANT_PLACEHOLDER)
    if names and variant not in names:
        raise unknown_variant_error(variant, names)
    return {key: _fill_placeholders(value, VARIANT_PLACEHOLDER, variant) for key, value in rest.items()}


def apply_variant_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the settings of `[variants.NAME]` merged over the common ones."""
    tables = _variant_settings(values)
    if (variant := values.get("variant")) is None or not tables:
        return values
    rest = {key: value for key, value in values.items() if key != "variants"}
    own = tables.get(str(variant), {})
    both = {name: (rest.get(name, {}), table) for name, table in own.items()}
    # If the common value is not a table, the settings validation rejects it later.
    return {**rest, **{name: {**common, **table} for name, (common, table) in both.items() if isinstance(common, dict)}}


def _variant_settings(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the settings of each variant, by variant and table."""
    tables, names = values.get("variants", {}), variant_names(values)
    for variant, own in _check_tables("variants", tables).items():
        if variant not in names:
            raise UsageError(
                "variant_table_unknown",
                variant=variant,
                error=unknown_variant_error(variant, names, "reproduce.variants"),
            )
        for name in _check_tables(f"variants.{variant}", own):
            if name not in VARIANT_TABLES:
                raise UsageError(
                    "variant_table_not_allowed", variant=variant, table=name, allowed=", ".join(VARIANT_TABLES)
                )
    return tables


def _check_tables(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise UsageError("variants_not_tables", name=name)
    return value


def unknown_variant_error(name: str, known: Sequence[str], owner: str = "the run file") -> UsageError:
    """The error for a variant that does not exist."""
    if not known:
        return UsageError("no_variants", name=name, owner=owner)
    return UsageError("unknown_variant", name=name, suggestion=suggest_name(name, list(known)), known=", ".join(known))


def variant_names(values: dict[str, Any]) -> list[str]:
    """Return the variant names in a run file."""
    table = values.get("reproduce")
    names = table.get("variants", []) if isinstance(table, dict) else []
    if not isinstance(names, list | tuple):
        raise UsageError("variants_not_list", value=names)
    return [str(name) for name in names]


def has_placeholders(values: dict[str, Any]) -> bool:
    """Return whether a run file has several variants. The table [reproduce] is ignored."""
    settings = {key: value for key, value in values.items() if key not in ("variant", "variants", "reproduce")}
    return VARIANT_PLACEHOLDER in str(settings)


def _fill_placeholders(value: Any, placeholder: str, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _fill_placeholders(each, placeholder, name) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_placeholders(each, placeholder, name) for each in value]
    return type(value)(str(value).replace(placeholder, name)) if isinstance(value, str | Path) else value


def make_test_corpus(test: Expectation, data: DataConfig) -> CorpusConfig | None:
    """Return the files of a test, read like validation files; None if it has none."""
    if not test.has_files:
        return None
    alike = next(iter((*data.validation, *data.training)), None)
    reading = (
        {} if alike is None else alike.model_dump(exclude_unset=True, exclude={"source", "target", "file", "weight"})
    )
    if test.file is None:  # fields apply only to files with both sides
        reading = {name: value for name, value in reading.items() if name in (*TEXT_FILE_SETTINGS, "tag")}
    files = {"source": test.source, "target": test.target, "file": test.file}
    return CorpusConfig(**{**reading, **files, "tag": test.tag or reading.get("tag")}).in_folder(data.folder)
