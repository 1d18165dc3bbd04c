"""The settings of a run, as a run file holds them. Reading them needs no torch, so a mistake is answered at once."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.settings import Settings
from attendo.train.config import TrainConfig


class DataConfig(Settings):
    """Parallel text: one sentence a line, plain, .gz or .xz. Without validation files some pairs are kept back."""

    task: Literal["files", "builtin"] = Field("files", description="builtin: the English → Chinese grammar, no files")
    source: Path | None = None
    target: Path | None = None
    valid_source: Path | None = None
    valid_target: Path | None = None

    @model_validator(mode="after")
    def _files_fit_the_task(self) -> Self:
        files = (self.source, self.target, self.valid_source, self.valid_target)
        if self.task == "builtin" and any(files):
            raise ValueError("data.task builtin makes its own sentences: give no data files with it")
        if self.task == "files" and (self.source is None or self.target is None):
            raise ValueError("data.source and data.target are missing: name the two text files")
        if (self.valid_source is None) != (self.valid_target is None):
            raise ValueError("give both data.valid_source and data.valid_target, or neither")
        return self


class TokenizerConfig(Settings):
    """How text becomes ids."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "bpe"
    size: Annotated[int, Field(ge=8)] = Field(8000, description="vocabulary at most; of each side unless joint")
    joint: bool = Field(False, description="one vocabulary for source and target, as tie all needs")


class RunConfig(Settings):
    """A run: which text, which network, how it learns."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    preset: str = "small"
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: dict[str, Any] = Field({}, description="settings of ModelConfig that differ from the preset")
    train: TrainConfig = TrainConfig()

    @model_validator(mode="after")
    def _network_makes_sense(self) -> Self:
        self.network(8, 8)
        if self.model.get("tie") == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie all needs one joint vocabulary: set tokenizer.joint to true, or model.tie to output"
            )
        return self

    def network(self, source_vocab_size: int, target_vocab_size: int) -> ModelConfig:
        """The network's settings, once the vocabularies are known."""
        sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
        if decided := sorted({"vocab_size", *sizes} & self.model.keys()):
            raise ValueError(f"model.{decided[0]} comes from the tokenizer: set tokenizer.size")
        if self.model.get("num_encoder_layers") == 0:
            raise ValueError("model.num_encoder_layers 0: a run needs an encoder to read its source")
        try:
            return ModelConfig.preset(self.preset, **sizes, **self.model)
        except UsageError as error:
            raise UsageError(f"[model] {error}") from None


def read_run_file(path: Path) -> dict[str, Any]:
    """The values of a TOML run file. Paths in it are relative to where one stands."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"run file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"run file {path} is not TOML: {error}") from None


def apply_changes(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """`train.peak_lr=3e-4` sets that value; what is not a TOML value is taken as a string."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {change}: write key=value, such as train.steps=1000")
        *sections, name = key.strip().split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {change}: {section} is a value, not a section")
        place[name] = _toml_value(text.strip())
    return values


def to_toml(config: RunConfig) -> str:
    """Every setting, those of the preset and of ModelConfig too, as a run file that reads back to the same run."""
    content = config.model_dump(mode="json", exclude_none=True)
    network = config.network(8, 8).model_dump(mode="json", exclude_none=True)
    content["model"] = {name: value for name, value in network.items() if not name.endswith("vocab_size")}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    lines = [f"{key} = {_toml_literal(value)}" for key, value in content.items() if key not in tables]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {_toml_literal(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _toml_literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
