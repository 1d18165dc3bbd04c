"""How far a training of a recipe has come, as its run folder tells."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attendo.errors import ModelError, UsageError
from attendo.explore.curves import METRICS_FILE, read_histories
from attendo.recipes.files import write_text_file
from attendo.runs.config import RunConfig, list_differences, load_run_config, make_paths_absolute
from attendo.runs.recipe_config import Expectation

RunState = Literal["new", "begun", "complete"]
Checksums = Mapping[str, str]  # SHA-256 of the files that a run learns from, by their names in the run file

TEXTS_FILE = "texts.json"


def read_run_state(folder: Path, config: RunConfig, checksums: Checksums) -> RunState:
    """Whether the run in a folder is still to be begun, resumed, or taken as it is. Another run's is refused."""
    begun = any((folder / name).exists() for name in ("data", "checkpoints", "model"))
    if not (begun and (folder / "run.toml").is_file()):
        return "new"
    stored = load_run_config(folder)
    if other := list_differences(_comparable_config(stored), _comparable_config(config)):
        raise UsageError("run_settings_differ", folder=folder, settings=", ".join(other))
    _check_text_unchanged(folder, (stored.data.folder, config.data.folder), checksums)
    if not _is_complete(folder, config.train.steps):
        return "begun"
    read_run_facts(folder)  # what will be asked of it in the end: what is damaged is told before other runs are trained
    return "complete"


def write_text_checksums(folder: Path, checksums: Checksums) -> None:
    """What a run learns from, written down when it begins. Runs from before that was done are taken as they are."""
    write_text_file(folder / TEXTS_FILE, json.dumps(dict(checksums), indent=2, ensure_ascii=False) + "\n")


def read_run_facts(folder: Path) -> dict[str, Any]:
    """What a finished run came to, what it learned from and what it ran on."""
    (history,) = read_histories([folder])
    texts = _read_text_checksums(folder)
    return {
        "steps": int(history.steps[-1]),
        "best_step": _read_scores(folder).get("best_step"),
        "training_seconds": round(float(history.seconds[-1]), 1),
        **({} if texts is None else {"learned_from": texts}),
        "trained_with": _read_json_object(folder / "run.json"),
    }


def read_validation_loss(folder: Path, test: Expectation, config: RunConfig) -> float:
    """Of the weights that the model folder has, in nats a token."""
    (history,) = read_histories([folder])
    step = _read_scores(folder).get("best_step") if config.train.final == "best" else history.steps[-1]
    for place, validated in enumerate(history.validation_steps):
        if validated == step:
            return float(history.scores["valid_loss"][place])
    raise ModelError("model_validation_missing", path=folder / "metrics.jsonl", test=test.name, metric=test.metric)


def _check_text_unchanged(folder: Path, data_folders: tuple[Path | None, Path | None], checksums: Checksums) -> None:
    """The text must be the same, wherever it lies; `data_folders` are those of then and of now."""
    before = _read_text_checksums(folder)
    if before is None:
        return
    for name in checksums:
        if before.get(name) != checksums[name]:
            then, now = ((place or Path()) / name for place in data_folders)
            raise UsageError(
                "training_text_changed",
                folder=folder,
                old_path=then,
                old_sha256=before.get(name),
                new_path=now,
                new_sha256=checksums[name],
            )


def _is_complete(folder: Path, steps: int) -> bool:
    """The model is written anew at the end, with the last step; that may be an early one, if patience ran out."""
    written = _read_scores(folder).get("step")
    return isinstance(written, int) and (written >= steps or _has_stopped_early(folder, written))


def _has_stopped_early(folder: Path, step: int) -> bool:
    read_histories([folder])  # says so where a line is damaged; the last one may be cut
    with (folder / METRICS_FILE).open("rb") as lines:
        told = [json.loads(line) for line in lines if line.startswith(b'{"kind": "stopped"') and line.endswith(b"\n")]
    return any(report["step"] == step for report in told)


def _read_scores(folder: Path) -> dict[str, Any]:
    """Empty where they are damaged: the run is then not complete, and writes them anew."""
    try:
        return _read_json_object(folder / "model" / "scores.json")
    except ModelError:
        return {}


def _read_text_checksums(folder: Path) -> dict[str, Any] | None:
    return _read_json_object(folder / TEXTS_FILE) if (folder / TEXTS_FILE).exists() else None


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ModelError("run_record_damaged", path=path, folder=path.parent)
    return content


def _comparable_config(config: RunConfig) -> RunConfig:
    """The settings as a run keeps them, but for what makes no other run of it.

    Data sets may be moved; and where memory did not suffice, smaller batches make updates of the same size.
    """
    config = make_paths_absolute(config)
    train, together = config.train, config.train.batch_tokens * config.train.accumulate
    alike = train.replace(batch_tokens=together, accumulate=1)
    return config.replace(data=config.data.replace(folder=None), train=alike)
