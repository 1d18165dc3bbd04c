"""The state of a recipe's training run, read from its run folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attendo.errors import ModelError, UsageError
from attendo.explore.curves import METRICS_FILE, read_histories
from attendo.model_files import format_json, read_json
from attendo.recipes.files import write_text_file
from attendo.runs.config import RunConfig, list_differences, load_run_config, make_paths_absolute
from attendo.runs.recipe_config import Expectation
from attendo.runs.run_folder import is_run_begun

RunState = Literal["new", "begun", "complete"]
Checksums = Mapping[str, str]  # SHA-256 of the training files, by their names in the run file

TEXTS_FILE = "texts.json"


def read_run_state(folder: Path, config: RunConfig, checksums: Checksums) -> RunState:
    """Return whether the run is new, begun or complete. Raise `UsageError` if the folder has a different run."""
    if not is_run_begun(folder):
        return "new"
    stored = load_run_config(folder)
    if other := list_differences(_comparable_config(stored), _comparable_config(config)):
        raise UsageError("run_settings_differ", folder=folder, settings=", ".join(other))
    _check_text_unchanged(folder, (stored.data.folder, config.data.folder), checksums)
    if not _is_complete(folder, config.train.steps):
        return "begun"
    read_run_facts(folder)  # read at the end too: report damage before other runs are trained
    return "complete"


def write_text_checksums(folder: Path, checksums: Checksums) -> None:
    """Write the checksums of the training files when a run begins. Older runs without them are accepted."""
    write_text_file(folder / TEXTS_FILE, format_json(dict(checksums)))


def read_run_facts(folder: Path) -> dict[str, Any]:
    """Return steps, target tokens, training time, training files and environment of a finished run."""
    (history,) = read_histories([folder])
    texts = _read_text_checksums(folder)
    return {
        "steps": int(history.steps[-1]),
        "best_step": _read_scores(folder).get("best_step"),
        "target_tokens": int(history.tokens[-1]),
        "training_seconds": round(float(history.seconds[-1]), 1),
        **({} if texts is None else {"learned_from": texts}),
        "trained_with": _read_json_object(folder / "run.json"),
    }


def read_validation_loss(folder: Path, test: Expectation, config: RunConfig) -> float:
    """Return the validation loss of the weights in the model folder, in nats per token."""
    (history,) = read_histories([folder])
    step = _read_scores(folder).get("best_step") if config.train.final == "best" else history.steps[-1]
    for validated, loss in zip(history.validation_steps, history.scores["valid_loss"], strict=True):
        if validated == step:
            return float(loss)
    raise ModelError("model_validation_missing", path=folder / METRICS_FILE, test=test.name, metric=test.metric)


def _check_text_unchanged(folder: Path, data_folders: tuple[Path | None, Path | None], checksums: Checksums) -> None:
    """Check that the text is unchanged, even if moved. `data_folders` are the old and the new folder."""
    before = _read_text_checksums(folder)
    if before is None:
        return
    for name in checksums:
        if before.get(name) != checksums[name]:
            then, now = ((data_folder or Path()) / name for data_folder in data_folders)
            raise UsageError(
                "training_text_changed",
                folder=folder,
                old_path=then,
                old_sha256=before.get(name),
                new_path=now,
                new_sha256=checksums[name],
            )


def _is_complete(folder: Path, steps: int) -> bool:
    """Return whether the run has finished. The final model has the last step, or an early one if patience ran out."""
    step = _read_scores(folder).get("step")
    return isinstance(step, int) and (step >= steps or _has_stopped_early(folder, step))


def _has_stopped_early(folder: Path, step: int) -> bool:
    read_histories([folder])  # raises an error for a damaged line; the last one may be truncated
    with (folder / METRICS_FILE).open("rb") as lines:
        ends = [json.loads(line) for line in lines if line.startswith(b'{"kind": "stopped"') and line.endswith(b"\n")]
    return any(report["step"] == step for report in ends)


def _read_scores(folder: Path) -> dict[str, Any]:
    """Return the scores, or nothing if they are damaged: the run is then incomplete and writes them again."""
    try:
        return read_json(folder / "model" / "scores.json")
    except ModelError:
        return {}


def _read_text_checksums(folder: Path) -> dict[str, Any] | None:
    return _read_json_object(folder / TEXTS_FILE) if (folder / TEXTS_FILE).exists() else None


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ModelError:
        raise ModelError("run_record_damaged", path=path, folder=path.parent) from None


def _comparable_config(config: RunConfig) -> RunConfig:
    """Return the settings as a run stores them, without those that do not change the run.

    Data sets may be moved. Smaller batches with more accumulation give the same update size. The model of a start may
    be reached through a link.
    """
    config = make_paths_absolute(config)
    train = config.train
    train = train.replace(batch_tokens=train.batch_tokens * train.accumulate, accumulate=1)
    start = config.start_from and config.start_from.resolve()
    return config.replace(data=config.data.replace(folder=None), train=train, start_from=start)
