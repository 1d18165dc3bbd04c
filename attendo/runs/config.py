"""The settings of a run, as in a run file. Reading them does not import torch, so that errors appear immediately."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, Field, model_validator

from attendo.data.config import DataConfig, list_non_defaults
from attendo.decode.config import SOURCE_SETTINGS, GenerationConfig
from attendo.decode.kinds import check_kind
from attendo.decode.options import CallFields
from attendo.errors import UsageError
from attendo.metrics import PERPLEXITIES, check_metric
from attendo.model.config import PRESETS, ModelConfig
from attendo.runs.recipe_config import Reproduce, apply_variant, apply_variant_settings
from attendo.settings import Settings
from attendo.text.config import TokenizerConfig
from attendo.text.model_card import ModelCard
from attendo.text.model_card import infer_model_card as infer_from_file_names
from attendo.text.newlines import add_newline_symbol
from attendo.train.config import TrainConfig, check_guided_alignment

# Model settings that a run with `start_from` may change. Another kind keeps the weights that both kinds have.
_CHANGEABLE = {"dropout", "attention_dropout", "activation_dropout", "final_dropout", "kind", "upsample", "canvas"}


class RunConfig(Settings):
    """Settings of a run: data, network and training."""

    tables: ClassVar[dict[str, type[BaseModel]]] = {"model": ModelConfig, "generation": GenerationConfig}

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        1, description="seed of the initial weights, the data order and dropout"
    )
    preset: str = Field("auto", description="size of the network; auto chooses it and all open settings from the data")
    start_from: Path | None = Field(None, description="model folder to fine-tune, with its network and tokenizer")
    data: DataConfig = Field(description="table [data]: training and validation data")
    tokenizer: TokenizerConfig = Field(TokenizerConfig(), description="table [tokenizer]: how text becomes ids")
    model: dict[str, Any] = Field({}, description="table [model]: differences from the preset's network")
    train: TrainConfig = Field(TrainConfig(), description="table [train]: training settings")
    generation: dict[str, Any] = Field({}, description="table [generation]: decoding defaults of the model")
    about: ModelCard = Field(ModelCard(), description="table [about]: task and languages of the model")
    reproduce: Reproduce | None = Field(None, description="table [reproduce]: how a recipe is evaluated")

    @model_validator(mode="before")
    @classmethod
    def _apply_variant(cls, values: dict[str, Any]) -> dict[str, Any]:
        return _apply_preset_vocabulary(apply_variant(_with_new_names(values)))

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        self._check_running_text()
        self._check_prepared()
        self._check_generation()
        self._check_kind()
        self._check_alignments()
        if self.start_from is not None:
            self._check_start()
            return self
        network = self.make_model_config(8, 8)
        separate = not (self.tokenizer.joint or self.data.prepared or self.data.text)
        if network.ties_inputs and separate and self.preset != "auto":
            of_preset = "" if "tie" in self.model else f" (which preset {self.preset} has)"
            raise UsageError("tie_all_without_joint_vocabulary", tie=network.tie, origin=of_preset)
        if self._is_prefix_lm and separate:
            raise UsageError("prefix_lm_without_joint_vocabulary")
        return self

    @property
    def _is_prefix_lm(self) -> bool:
        return bool(self.model.get("prefix_lm"))

    @property
    def _continues_text(self) -> bool:
        return self.model.get("num_encoder_layers") == 0 and not self._is_prefix_lm

    def _check_generation(self) -> None:
        try:
            GenerationConfig(**self.generation)
        except UsageError as error:
            raise UsageError("run_generation_settings_invalid", error=error) from None

    def _check_kind(self) -> None:
        """Check the settings for the kind of the network. That of `start_from` is not known before it is loaded."""
        kind = self.model.get("kind", "autoregressive")
        if "kind" in self.model or self.start_from is None:
            check_kind_settings(kind, self.train, self.generation)
        if self._is_prefix_lm:
            check_prefix_lm_settings(self.train)

    def _check_alignments(self) -> None:
        """Check guided alignment. The network of `start_from` and prepared data are not known before they are read."""
        if self.data.has_alignments and self.start_from is None and self.preset != "auto":
            check_guided_alignment(self.make_model_config(8, 8), self.train)
        guides = self.train.guided_alignment or self.train.guided_alignment_layer is not None
        if guides and self.data.prepared is None and not self.data.has_alignments:
            raise UsageError("guided_alignment_without_alignments")

    def _check_running_text(self) -> None:
        """Check that language models train on plain text, and other networks do not."""
        continues_text, text = self._continues_text, self.data.text is not None
        decided = self.preset != "auto" or "num_encoder_layers" in self.model
        if continues_text and not (text or self.data.prepared):
            raise UsageError("decoder_only_without_text")
        if text and self._is_prefix_lm:
            raise UsageError("running_text_with_prefix_lm")
        if text and decided and not continues_text and self.start_from is None:
            raise UsageError("running_text_with_encoder")
        if text or continues_text:
            self._check_source_settings()
        if text and self.start_from is None:
            add_newline_symbol(self.tokenizer)

    def _check_source_settings(self) -> None:
        """Reject settings about sources and outputs for a run on plain text, which has neither."""
        if scored := self.train.metrics_to_decode:
            raise UsageError("running_text_metric_unscorable", metric=scored[0])
        check_mrt_data(self.train, is_running_text=True)
        for name, neutral in SOURCE_SETTINGS.items():
            if (value := self.generation.get(name)) and value != neutral:
                raise UsageError("generation_option_needs_source", option=name)
        for test in () if self.reproduce is None else self.reproduce.test:
            if test.metric not in (*PERPLEXITIES, "loss"):
                raise UsageError("running_text_test_unscorable", test=test.name, metric=test.metric)

    def _check_prepared(self) -> None:
        if self.data.prepared is None:
            return
        if idle := list_non_defaults(
            self.tokenizer, [name for name in TokenizerConfig.model_fields if name != "dropout"]
        ):
            raise UsageError("prepared_tokenizer_fixed", setting=idle[0])

    def _check_start(self) -> None:
        if "tokenizer" in self.model_fields_set and self.tokenizer.model_fields_set - {"dropout"}:
            raise UsageError("start_from_tokenizer_fixed")
        if "preset" in self.model_fields_set and self.preset != "auto":
            raise UsageError("start_from_preset_fixed")
        if fixed := sorted(self.model.keys() - _CHANGEABLE):
            raise UsageError("start_from_network_fixed", setting=fixed[0])

    def make_model_config(self, source_vocab_size: int, target_vocab_size: int) -> ModelConfig:
        """Return the network's settings for these vocabulary sizes."""
        sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
        if decided := sorted({"vocab_size", *sizes} & self.model.keys()):
            raise UsageError("vocabulary_size_in_model", setting=decided[0])
        if self._continues_text:
            del sizes["source_vocab_size"]
        preset = "small" if self.preset == "auto" else self.preset
        try:
            return ModelConfig.preset(preset, **sizes, **self.model)
        except UsageError as error:
            raise UsageError("model_settings_invalid", error=error) from None


def check_kind_settings(kind: str, train: TrainConfig, generation: Mapping[str, Any]) -> None:
    """Reject training and decoding settings that a network of this kind does not have."""
    if kind not in get_args(ModelConfig.model_fields["kind"].annotation):
        return  # the error of the model's settings names the known kinds
    if train.objective == "ngrams" and kind != "graph":
        raise UsageError("ngrams_needs_graph", kind=kind)
    if kind not in ("ctc", "graph"):
        for name in ("glancing", "glancing_end", "glancing_until"):
            if getattr(train, name) != TrainConfig.model_fields[name].default:
                raise UsageError("glancing_needs_alignments", option=name, kind=kind)
    elif train.label_smoothing not in (0, TrainConfig.model_fields["label_smoothing"].default):
        raise UsageError("label_smoothing_unused", value=train.label_smoothing, kind=kind)
    if kind != "autoregressive":
        if train.compile == "on":
            raise UsageError("compile_needs_autoregressive", kind=kind)
        if train.sharding != "none":
            raise UsageError("sharding_needs_autoregressive", kind=kind)
        for name in ("input_noise", "scheduled_sampling", "objective"):
            value = getattr(train, name)
            if value not in (TrainConfig.model_fields[name].default, "ngrams"):  # ngrams: checked above
                raise UsageError("treatment_needs_autoregressive", option=name, value=value, kind=kind)
    check_kind(kind, CallFields(), GenerationConfig(**generation))


def check_prefix_lm_settings(train: TrainConfig) -> None:
    """Reject training settings that a prefix LM does not have."""
    if train.sharding != "none":
        raise UsageError("sharding_with_prefix_lm", sharding=train.sharding)


def check_mrt_data(train: TrainConfig, is_running_text: bool) -> None:
    """Reject minimum risk training on running text, which has no references."""
    if train.objective == "mrt" and is_running_text:
        raise UsageError("mrt_needs_pairs")


def check_objective_start(config: "RunConfig") -> None:
    """Reject new weights for an objective that compares the model's own outputs: theirs are noise."""
    if config.train.objective != "likelihood" and config.start_from is None:
        raise UsageError("objective_needs_trained_model", objective=config.train.objective)


def _with_new_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the new names of decoding settings. A run file of version 0.1.0 has the old ones."""
    generation = values.get("generation")
    if not isinstance(generation, dict):
        return values
    return {**values, "generation": GenerationConfig.with_new_names(generation, warn=False)}


def _apply_preset_vocabulary(values: dict[str, Any]) -> dict[str, Any]:
    """Make the vocabulary joint if the network has one embedding table, unless a setting overrides it."""
    tables = {name: values.get(name, {}) for name in ("model", "tokenizer", "data")}
    if not all(isinstance(table, Mapping) for table in tables.values()):
        return values
    shares = isinstance(preset := values.get("preset"), str) and PRESETS.get(preset, {}).get("tie") == "all"
    shares = (shares and "tie" not in tables["model"]) or bool(tables["model"].get("prefix_lm"))
    has_vocabulary = tables["data"].get("prepared") or tables["data"].get("text") or values.get("start_from")
    if not shares or has_vocabulary or "joint" in tables["tokenizer"]:
        return values
    return {**values, "tokenizer": {**tables["tokenizer"], "joint": True}}


def make_open_config(values: Mapping[str, Any]) -> RunConfig:
    """Return settings of which some are still open. A named preset is validated but not applied yet."""
    if (preset := str(values.get("preset", "auto"))) != "auto":
        ModelConfig.preset(preset, vocab_size=8)
    return RunConfig(**{**values, "preset": "auto"})


def check_metrics(config: RunConfig) -> None:
    """Raise `UsageError` for a metric whose package is not installed."""
    for name in config.train.metrics_to_decode:
        check_metric(name)
    if config.train.objective == "mrt" and config.train.mrt_utility == "bleu":
        check_metric("bleu")


def derive_generation_settings(
    window: int | None, cut_source: int | None, context_sentences: int = 0
) -> dict[str, Any]:
    """Return the decoding defaults that follow from the training data. Settings of the run override them."""
    extra = {} if window is None else {"max_length_extra": window}  # room for one more window
    cut = {} if cut_source is None else {"max_source": cut_source, "long_source": "truncate"}  # truncate as in training
    context = {"context_sentences": context_sentences} if context_sentences else {}
    return {**extra, **cut, **context}


def infer_model_card(config: RunConfig, text: DataConfig | None = None) -> ModelCard:
    """Infer the model card from the file names, unless the run sets it or fine-tunes a model.

    `text` holds the settings that prepared data was made with.
    """
    if config.about != ModelCard() or config.start_from is not None:
        return config.about
    text = text or config.data
    if text.text is not None:
        return ModelCard(task="generation")
    if turns := {each.context_turns for each in text.training if each.turns_field is not None}:
        return ModelCard(task="conversation", context_turns=max(turns))
    cards = {
        ModelCard() if each.source is None or each.target is None else infer_from_file_names(each.source, each.target)
        for each in text.training
    }
    return cards.pop() if len(cards) == 1 else ModelCard()


def read_run_file(path: Path, included_from: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the values of a TOML run file, merged over those of its `base`, a path relative to this file.

    Paths of data files are relative to the working folder. `included_from` holds the files that include this one.
    """
    origin = f", the base of {included_from[-1]}," if included_from else ""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError("run_file_not_readable", path=path, origin=origin, reason=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("run_file_not_toml", path=path, origin=origin, reason=error) from None
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UsageError("base_not_file_name", path=path, value=toml_literal(base)[:80])
    below = (path.parent / base).resolve()
    if below in [each.resolve() for each in (*included_from, path)]:
        raise UsageError("base_circular", path=path, base=base)
    return merge_settings(read_run_file(path.parent / base, (*included_from, path)), values)


def merge_settings(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Merge tables recursively. Any other value in `overrides` replaces the one in `base`."""
    joined = {**base, **overrides}
    for name in base.keys() & overrides.keys():
        if isinstance(base[name], dict) and isinstance(overrides[name], dict):
            joined[name] = merge_settings(base[name], overrides[name])
    return joined


def load_run_config(run: Path, changes: Sequence[str] = ()) -> RunConfig:
    """Return the settings of the run in a folder, with the --set changes applied."""
    file = run / "run.toml"
    if not file.is_file():
        raise UsageError("run_not_found", folder=run)
    values = apply_changes(read_run_file(file), changes)
    with name_file_in_errors(file, changes):
        return RunConfig(**values)


@contextmanager
def name_file_in_errors(file: Path | None, changes: Sequence[str] = ()) -> Iterator[None]:
    """Add the file name to errors in settings, and mention --set if it may be the cause."""
    try:
        yield
    except UsageError as error:
        if file is None:
            raise
        code = "run_file_with_changes_invalid" if changes else "run_file_invalid"
        raise UsageError(code, path=file, error=error) from None


def apply_changes(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Set values such as `train.peak_lr=3e-4`. Text that is not a TOML value is a string."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise UsageError("set_option_without_value", change=change)
        *sections, name = key.strip().split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise UsageError("set_option_not_section", change=change, name=section)
        changed = {name: _parse_toml_value(text.strip())}
        if sections == ["generation"]:
            values = _with_new_names(values)
            table, changed = values["generation"], GenerationConfig.with_new_names(changed)
        table.update(changed)
    return values


def apply_changes_to_variant(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Apply --set to the values of a run file. It also overrides the settings of the selected variant."""
    variant = [change for change in changes if change.partition("=")[0].strip() == "variant"]
    values = apply_variant_settings(apply_changes(values, variant))
    return apply_changes(values, [change for change in changes if change not in variant])


def make_paths_absolute(config: RunConfig) -> RunConfig:
    """Make all paths absolute, so that the run can be resumed from any folder."""
    config = config.replace(data=config.data.resolve_paths())
    if config.start_from is not None:
        config = config.replace(start_from=config.start_from.absolute())
    files = {name: getattr(config.tokenizer, name) for name in ("file", "target_file")}
    if files["file"] is not None:
        found = {name: path.absolute() for name, path in files.items() if path is not None}
        config = config.replace(tokenizer=config.tokenizer.replace(**found))
    return config


def to_toml(config: RunConfig) -> str:
    """Return all settings, including those of the preset and ModelConfig, as a run file for the same run.

    The table [reproduce] is omitted, because it may change without changing the run.
    """
    return format_toml(resolve_config(config))


def format_toml(content: dict[str, Any], remarks: Mapping[str, Sequence[str]] | None = None) -> str:
    """Format settings by table as a run file. Remarks, by table, become comments after its settings."""
    content = {**content, "data": dict(content["data"])}
    corpora = {name: content["data"].pop(name) for name in ("corpora", "valid_corpora")}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines = [f"{key} = {toml_literal(value)}" for key, value in content.items() if key not in tables]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {toml_literal(value)}" for key, value in values.items())]
        lines += [f"# {remark}" for remark in (remarks or {}).get(table, ())]
        for name, several in corpora.items() if table == "data" else ():
            for corpus in several:
                lines += ["", f"[[data.{name}]]", *(f"{key} = {toml_literal(value)}" for key, value in corpus.items())]
    return "\n".join(lines) + "\n"


def resolve_config(config: RunConfig, include_defaults: bool = True) -> dict[str, Any]:
    """Return the settings that identify a run: all of them, or only those that differ from their defaults."""
    how: dict[str, Any] = {"mode": "json", "exclude_none": True, "exclude_defaults": not include_defaults}
    content = config.model_dump(**how, exclude={"reproduce"})
    if config.train.schedule != "noam":
        rate = config.train.peak_lr or config.train.default_peak_lr
        content["train"] = config.train.replace(peak_lr=rate).model_dump(**how)
    if config.train.epochs is not None:  # determines the steps
        content["train"].pop("steps", None)
    if config.start_from is None:
        network = config.make_model_config(8, 8).model_dump(**how)
        content["model"] = {name: value for name, value in network.items() if not name.endswith("vocab_size")}
    else:
        for name in ("tokenizer", "preset"):
            content.pop(name, None)
        if config.tokenizer.dropout:
            content["tokenizer"] = {"dropout": config.tokenizer.dropout}
    if not content.get("about"):
        content.pop("about", None)
    return content


def list_differences(before: RunConfig, after: RunConfig) -> list[str]:
    """Return the settings that differ in `after`, with their tables. Missing ones have no value."""
    one, other = (_flatten(tomllib.loads(to_toml(each))) for each in (before, after))
    names = [name for name in {**other, **one} if other.get(name) != one.get(name)]
    return [f"{name} = {toml_literal(other[name])}" if name in other else f"no {name}" for name in names]


def toml_literal(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_literal(each) for each in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _parse_toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
