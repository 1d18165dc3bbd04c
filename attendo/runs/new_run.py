"""The settings of a new run: given settings, and choices from the data for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.config import DataConfig, as_tuple, detect_format
from attendo.errors import LocalizedText, shorten
from attendo.runs.auto_config import DataStats, SettingChoice, apply_choices, are_settings_open, choose_settings
from attendo.runs.config import (
    RunConfig,
    apply_changes_to_variant,
    check_metrics,
    infer_model_card,
    make_open_config,
    merge_settings,
    name_file_in_errors,
    read_run_file,
)


@dataclass(frozen=True)
class NewRun:
    """Settings ready for training, and which of them were chosen."""

    config: RunConfig
    choices: tuple[SettingChoice, ...]


def resolve_settings(
    values: Mapping[str, Any],
    changes: Sequence[str] = (),
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> NewRun:
    """Validate `values` (as in a run file) with `changes` (as in --set), and choose the open settings.

    `overrides` take precedence over the file. Errors name `file`. Choosing reads the text.
    """
    of_file = {} if file is None else {**values}
    with name_file_in_errors(file, changes):
        given = apply_changes_to_variant(merge_settings({**values}, {**(overrides or {})}), changes)
        chooses = are_settings_open(of_file, given)
        config = make_open_config(given) if chooses else RunConfig(**given)
        if about := infer_model_card(config, load_text_settings(config.data)).to_dict():
            given["about"] = about
            config = config.replace(about=about)
        if not chooses:
            return NewRun(config, ())
        check_metrics(config)
        from attendo.runs.corpora import measure_data  # needs torch

        choices = _choose_open_settings(config, given.get("preset", "auto"), measure_data(config.data, config.seed))
        return NewRun(RunConfig(**apply_choices(given, choices)), tuple(choices))


def read_settings(run_file: Path | None, files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run file. `files` replaces files in [data]."""
    values: dict[str, Any] = {} if run_file is None else read_run_file(run_file)
    given = {name: value for name, value in files.items() if value}
    if given and isinstance(values.setdefault("data", {}), dict):
        values["data"] |= given
    return values


def is_data_file(path: Path) -> bool:
    """Return whether a path given as run file is a data file with pairs."""
    return detect_format(path) is not None and (path.suffix != "" or path.is_dir())


def load_text_settings(data: DataConfig) -> DataConfig:
    """Return the settings that name the text. For prepared data, these are the settings it was made with."""
    if data.prepared is None:
        return data
    from attendo.runs.corpora import read_data_config  # needs torch

    return read_data_config(data.prepared)


def describe_files(data: DataConfig) -> list[str]:
    """Describe each file with both sides: its fields and its first pair."""
    from attendo.data.corpus_files import describe_fields, read_rows

    if not as_tuple(data.file):
        return []
    lines: list[str] = []
    for corpus in data.training:
        first = next((row for row in read_rows(corpus) if row.fault is None), None)
        facts = {"name": corpus.name, "fields": describe_fields(corpus)}
        if first is None:
            lines.append(LocalizedText("{name}: {fields}", **facts))
            continue
        pair = {"source": shorten(first.source, 40), "target": shorten(first.target, 40)}
        lines.append(LocalizedText("{name}: {fields}; the first pair is {source} → {target}", **facts, **pair))
    return lines


def _choose_open_settings(config: RunConfig, preset: str, stats: DataStats) -> list[SettingChoice]:
    given = {**config.model_dump(exclude_unset=True), "preset": preset}
    choices = choose_settings(given, stats)
    epochs = config.train.epochs
    if epochs is None:
        return choices
    # The number of steps is known only after tokenisation. Until then the other choices use an estimate.
    chosen = {choice.name: choice.value for choice in choices}
    train = given.get("train", {})
    batch = [train.get(name, chosen.get(f"train.{name}", getattr(config.train, name))) for name in _BATCH_SETTINGS]
    steps = max(1, round(epochs * stats.tokens / (batch[0] * batch[1])))
    given["train"] = {**train, "steps": steps}
    return [choice for choice in choose_settings(given, stats) if choice.name != "train.steps"]


_BATCH_SETTINGS = ("batch_tokens", "accumulate")  # per update
