"""How far a training of a recipe has come, as its run folder tells."""

import json
from pathlib import Path
from typing import Any, Literal

from attendo.errors import ModelError, UsageError
from attendo.explore.curves import read_histories
from attendo.recipes.reproduce.config import Expectation
from attendo.recipes.run_config import RunConfig, differing, stored_config

State = Literal["new", "begun", "complete"]


def state_of(folder: Path, config: RunConfig) -> State:
    """Whether the run in a folder is still to be begun, resumed, or taken as it is. Another run's is refused."""
    begun = any((folder / name).exists() for name in ("data", "checkpoints", "model"))
    if not (begun and (folder / "run.toml").is_file()):
        return "new"
    before, now = (_wherever(each) for each in (stored_config(folder), config))
    if other := differing(before, now):
        raise UsageError(
            f"{folder} holds a run with other settings than {', '.join(other)}: name another folder (--out), or remove "
            "it"
        )
    return "complete" if _complete(folder, config.train.steps) else "begun"


def facts_of(folder: Path) -> dict[str, Any]:
    """What a finished run came to and what it ran on."""
    (history,) = read_histories([folder])
    told = json.loads((folder / "run.json").read_text("utf-8"))
    return {
        "steps": int(history.steps[-1]),
        "best_step": _scores(folder).get("best_step"),
        "training_seconds": round(float(history.seconds[-1]), 1),
        "trained_with": told,
    }


def validation_loss(folder: Path, test: Expectation, config: RunConfig) -> float:
    """Of the weights that the model folder has, in nats a token."""
    (history,) = read_histories([folder])
    step = _scores(folder).get("best_step") if config.train.final == "best" else history.steps[-1]
    for place, validated in enumerate(history.validated):
        if validated == step:
            return float(history.scores["valid_loss"][place])
    raise ModelError(
        f"{folder / 'metrics.jsonl'} tells of no validation of the model: {test.name} has no {test.metric}"
    )


def _complete(folder: Path, steps: int) -> bool:
    """The model is written anew at the end, with the last step; that may be an early one, if patience ran out."""
    written = _scores(folder).get("step")
    if written is None or written >= steps:
        return written is not None
    return any(report["kind"] == "stopped" and report["step"] == written for report in _reports(folder))


def _scores(folder: Path) -> dict[str, Any]:
    try:
        scores: dict[str, Any] = json.loads((folder / "model" / "scores.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return scores


def _reports(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"kind": "stopped"')]


def _wherever(config: RunConfig) -> RunConfig:
    """The settings, but for where the text lay: data sets may be moved."""
    return config.replace(data=config.data.replace(folder=None))
