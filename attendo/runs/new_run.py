"""The settings of a new run: what was given, and the rest chosen from the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.config import DataConfig, as_list, form_of
from attendo.runs.auto_config import Amount, Choice, applied, choose, is_open
from attendo.runs.config import (
    RunConfig,
    check_metrics,
    lay_over,
    mistakes_in,
    named_about,
    open_config,
    read_run_file,
    with_changes,
)


@dataclass(frozen=True)
class NewRun:
    """Settings that are ready to be trained with, and those of them that were chosen."""

    config: RunConfig
    choices: tuple[Choice, ...]


def resolve_settings(
    values: Mapping[str, Any],
    changes: Sequence[str] = (),
    file: Path | None = None,
    above: Mapping[str, Any] | None = None,
) -> NewRun:
    """Check `values`, as a run file has them, with `changes` as --set has them, and choose what they leave open.

    `above` are values that come before those of the file. A mistake names `file`. Choosing reads the text.
    """
    of_file = {} if file is None else {**values}
    with mistakes_in(file, changes):
        given = with_changes(lay_over({**values}, {**(above or {})}), changes)
        chooses = is_open(of_file, given)
        config = open_config(given) if chooses else RunConfig(**given)
        if about := named_about(config, text_settings(config.data)).told():
            given["about"] = about
            config = config.replace(about=about)
        if not chooses:
            return NewRun(config, ())
        check_metrics(config)
        from attendo.runs.corpora import amount  # needs torch

        choices = _choose(config, given.get("preset", "auto"), amount(config.data, config.seed))
        return NewRun(RunConfig(**applied(given, choices)), tuple(choices))


def read_settings(run_file: Path | None, files: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run file, with other files in [data] where `files` names some."""
    values: dict[str, Any] = {} if run_file is None else read_run_file(run_file)
    given = {name: value for name, value in files.items() if value}
    if given and isinstance(values.setdefault("data", {}), dict):
        values["data"] |= given
    return values


def is_data(path: Path) -> bool:
    """Whether a file that stands where a run file may stand holds pairs instead."""
    return form_of(path) is not None


def text_settings(data: DataConfig) -> DataConfig:
    """The settings that name the text: those that prepared data was made with."""
    if data.prepared is None:
        return data
    from attendo.runs.corpora import made_from  # needs torch

    return made_from(data.prepared)


def describe_files(data: DataConfig) -> list[str]:
    """For each file with both sides, in words: where they are, and what the first pair is."""
    from attendo.data.corpus_files import describe_fields, rows

    if not as_list(data.file):
        return []
    told = []
    for corpus in data.training:
        first = next((row for row in rows(corpus) if row.fault is None), None)
        pair = "" if first is None else f"; the first pair is {_short(first.source)} → {_short(first.target)}"
        told.append(f"{corpus.name}: {describe_fields(corpus)}{pair}")
    return told


def _choose(config: RunConfig, preset: str, amount: Amount) -> list[Choice]:
    given = {**config.model_dump(exclude_unset=True), "preset": preset}
    choices = choose(given, amount)
    epochs = config.train.epochs
    if epochs is None:
        return choices
    # How many steps these are is known when the text is ids; until then the other choices go by an estimate.
    chosen = {choice.name: choice.value for choice in choices}
    train = given.get("train", {})
    batch = [train.get(name, chosen.get(f"train.{name}", getattr(config.train, name))) for name in _SIZE]
    steps = max(1, round(epochs * amount.tokens / (batch[0] * batch[1])))
    given["train"] = {**train, "steps": steps}
    return [choice for choice in choose(given, amount) if choice.name != "train.steps"]


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


_SIZE = ("batch_tokens", "accumulate")  # of an update
