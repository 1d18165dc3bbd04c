"""How a recipe is judged: the table [reproduce] of a run file, and the variants that one file stands for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from attendo.data.config import TEXT_FILE_SETTINGS, CorpusConfig, DataConfig
from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.metrics import METRICS, PERPLEXITIES
from attendo.settings import Settings, suggest_name

VARIANT_PLACEHOLDER = "{variant}"  # in names of files, where the name of a variant goes
PART_PLACEHOLDER = "{part}"  # in those of a test, where the name of a part goes
VARIANT_TABLES = ("tokenizer", "model", "train", "generation")  # that may differ from variant to variant
VALIDATION_METRICS = ("loss", "perplexity")  # of the run's own validation, where a test names no files

Seed = Annotated[int, Field(ge=0, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # of a file or a folder too


class Expectation(Settings):
    """A score of a test set, and what it should come to."""

    name: Name = Field(description="what the test set is called; tests of one name are of one text")
    source: Path | None = Field(None, description="its source text; without any file, the run's validation pairs")
    target: Path | None = Field(None, description="its target text, line by line beside it")
    file: Path | None = Field(None, description="instead of the two: a .tsv or .jsonl file, with the fields of [data]")
    tag: str | None = Field(None, description="as tag of [data]; that of the validation files unless set")
    parts: tuple[Name, ...] = Field(
        (), description="one text for each, its name in place of `{part}` in file names and tag; the score is the mean"
    )
    metric: str = Field(description="a score of attendo evaluate, loss or perplexity")
    expected: float | None = Field(
        None, description="what was measured, the mean over seeds; nothing is judged without"
    )
    spread: NotNegative = Field(0.0, description="how much worse than expected it may be: from the spread over seeds")
    reference: float | None = Field(None, description="a published number to set beside it")
    reference_source: str | None = Field(None, description="where that was published")

    @property
    def files(self) -> tuple[Path | None, ...]:
        return (self.source, self.target, self.file)

    def for_part(self, part: str) -> "Expectation":
        """The same for one part alone."""
        named = {name: getattr(self, name) for name in ("source", "target", "file", "tag")}
        filled = {
            name: type(value)(str(value).replace(PART_PLACEHOLDER, part)) for name, value in named.items() if value
        }
        return self.replace(**filled, parts=())

    @property
    def has_files(self) -> bool:
        return any(self.files)

    @property
    def uses_run_validation(self) -> bool:
        """Whether it is read from the run's own validations, with nothing to decode."""
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
    """How a recipe is judged. Training does not look at it."""

    about: str = Field(description="the recipe in one sentence")
    dataset: str | None = Field(None, description="the folder's name in docs/data.md: --data may be what holds it")
    seeds: tuple[Seed, ...] = Field((1,), description="one training for each")
    variants: tuple[Name, ...] = Field(
        (), description="one training for each, its name in place of `{variant}` in file names; scores are the mean"
    )
    ensemble: bool = Field(
        False, description="the models of all seeds answer together, and that is what is judged; wants validation files"
    )
    generate: GenerationConfig = Field(GenerationConfig(), description="how the tests are decoded, as attendo generate")
    test: tuple[Expectation, ...] = Field(description="what is scored, and what should come out")

    @property
    def decoding(self) -> dict[str, Any]:
        """The options that were set; all others are the model's own."""
        return self.generate.model_dump(exclude_unset=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, values in (("seeds", self.seeds), ("variants", self.variants)):
            if len(set(values)) < len(values):
                raise UsageError("reproduce_list_duplicate", setting=name)
        for name, number in (("seeds", len(self.seeds)), ("test", len(self.test))):
            if not number:
                raise UsageError("reproduce_list_empty", setting=name)
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
    """The values of a run file with their `variant` in its places; a mistake is a `ValueError`."""
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
    return {key: _fill_placeholders(value, variant) for key, value in rest.items()}


def apply_variant_settings(values: dict[str, Any]) -> dict[str, Any]:
    """With what `[variants.NAME]` has for the `variant` in place of what all have."""
    tables = _variant_settings(values)
    if (variant := values.get("variant")) is None or not tables:
        return values
    rest = {key: value for key, value in values.items() if key != "variants"}
    own = tables.get(str(variant), {})
    both = {name: (rest.get(name, {}), table) for name, table in own.items()}
    # What is no table where all have it is left for the settings to refuse.
    return {**rest, **{name: {**common, **table} for name, (common, table) in both.items() if isinstance(common, dict)}}


def _variant_settings(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """By variant and table, what is different there."""
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
    """Their names, as a run file has them."""
    table = values.get("reproduce")
    names = table.get("variants", []) if isinstance(table, dict) else []
    if not isinstance(names, list | tuple):
        raise UsageError("variants_not_list", value=names)
    return [str(name) for name in names]


def has_placeholders(values: dict[str, Any]) -> bool:
    """Whether a run file stands for several variants. What is only for the tests does not make it so."""
    return any(
        _has_placeholder(value) for key, value in values.items() if key not in ("variant", "variants", "reproduce")
    )


def _has_placeholder(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_placeholder, value))
    return isinstance(value, str | Path) and VARIANT_PLACEHOLDER in str(value)


def _fill_placeholders(value: Any, variant: str) -> Any:
    if isinstance(value, dict):
        return {key: _fill_placeholders(each, variant) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fill_placeholders(each, variant) for each in value]
    if isinstance(value, str) or (isinstance(value, Path) and VARIANT_PLACEHOLDER in str(value)):
        return type(value)(str(value).replace(VARIANT_PLACEHOLDER, variant))
    return value


def make_test_corpus(test: Expectation, data: DataConfig) -> CorpusConfig | None:
    """The files of a test, read as validation files are; None where it has none."""
    if not test.has_files:
        return None
    alike = next(iter((*data.validation, *data.training)), None)
    reading = (
        {} if alike is None else alike.model_dump(exclude_unset=True, exclude={"source", "target", "file", "weight"})
    )
    if test.file is None:  # fields are those of a file with both sides
        reading = {name: value for name, value in reading.items() if name in (*TEXT_FILE_SETTINGS, "tag")}
    files = {"source": test.source, "target": test.target, "file": test.file}
    return CorpusConfig(**{**reading, **files, "tag": test.tag or reading.get("tag")}).in_folder(data.folder)
