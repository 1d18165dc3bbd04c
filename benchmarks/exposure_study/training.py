"""The trainings: the run file of each model, the commands that train, and whether a training is complete."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attendo.runs.commands import make_command
from attendo.runs.config import apply_changes, format_toml, read_run_file
from attendo.runs.run_folder import is_run_begun

from .plan import TASKS, Model, Study

RECIPES = Path(__file__).parents[2] / "recipes"
CONTINUATION_LR = 2e-4
R_DROP = 5.0
# Settings of a recipe's [train] that a continuation replaces.
_REPLACED = ("steps", "epochs", "schedule", "peak_lr", "final_lr", "warmup", "validate_every", "save_every", "patience")
_NOT_FOR_MRT = ("accumulate", "r_drop", "label_smoothing")


def make_training_command(study: Study, model: Model) -> list[str]:
    """Write the run file and return the command that trains or goes on."""
    folder = study.run_folder(model)
    file = folder.with_name(f"{model.name}.toml")
    file.write_text(format_run_file(make_settings(study, model)), "utf-8")
    if model.treatment == "mrt_shuffled":
        return [sys.executable, "-m", __package__, "train-shuffled", str(file), str(folder), "--device", study.device]
    if is_run_begun(folder):
        return make_command("train", "--resume", str(folder), "--device", study.device)
    data = ["--data", str(study.data / TASKS[model.task].folder)] if model.treatment == "base" else []
    return make_command("train", str(file), *data, "--out", str(folder), "--device", study.device)


def is_trained(study: Study, model: Model) -> bool:
    """Return whether the model folder has the weights of a complete run."""
    try:
        scores = json.loads((study.run_folder(model) / "model" / "scores.json").read_bytes())
    except (OSError, ValueError):
        return False
    return int(scores.get("step", 0)) >= int(make_settings(study, model)["train"]["steps"])


def make_settings(study: Study, model: Model) -> dict[str, Any]:
    """Return the run file of a model. For a base model it is the recipe with changes."""
    recipe = read_run_file(RECIPES / f"{TASKS[model.task].recipe}.toml")
    recipe.pop("reproduce", None)
    values = recipe if model.treatment == "base" else _continue(study, recipe, model)
    names = {"all", model.treatment} | ({"continued"} if model.treatment != "base" else set())
    changes = [change.partition(":")[2] for change in study.plan.changes if change.partition(":")[0] in names]
    return apply_changes({**values, "seed": model.seed}, changes)


def _continue(study: Study, recipe: Mapping[str, Any], model: Model) -> dict[str, Any]:
    is_mrt = model.treatment.startswith("mrt")
    steps = study.plan.mrt_steps if is_mrt else study.plan.steps
    train = {name: value for name, value in recipe["train"].items() if name not in _REPLACED}
    train |= {"steps": steps, "validate_every": steps, "save_every": max(1, steps // 4), "patience": 0}
    train |= {"metrics": ["bleu", "chrf"], "best": "chrf", "final": "last"}
    if is_mrt:
        train = {name: value for name, value in train.items() if name not in _NOT_FOR_MRT}
        train |= {"batch_tokens": TASKS[model.task].mrt_batch_tokens}
        train |= {"schedule": "constant", "peak_lr": 1e-5, "warmup": 0}
    else:
        train |= {"schedule": "linear", "peak_lr": CONTINUATION_LR, "warmup": steps // 20}
    base = study.run_folder(model.base)
    return {
        "start_from": str(base / "model"),
        "data": {"prepared": str(base / "data")},
        "tokenizer": {"dropout": recipe["tokenizer"].get("dropout", 0.0)},
        "train": train | treat(model.treatment, steps),
    }


def treat(treatment: str, steps: int) -> dict[str, Any]:
    """Return the settings of [train] of a treatment."""
    mrt = {"objective": "mrt", "mrt_alpha": 0.05, "mrt_cross_entropy": 0.02}
    sampling = {"scheduled_sampling": treatment, "sampling_start": 0.0}
    return {
        "control": {},
        "input_noise": {"input_noise": 0.15},
        "schedule": {**sampling, "sampling_decay": find_decay(steps / 2)},
        "confidence": sampling,
        "r_drop": {"r_drop": R_DROP},
        "mrt": mrt,
        "mrt_shuffled": mrt,
    }[treatment]


def find_decay(updates: float) -> float:
    """Return the k, at least e, with k · ln k = updates: the inverse sigmoid is then 1/2 after these updates."""
    low, high = 2.72, max(10.0, updates)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < updates else (low, middle)
    return round(low, 1)


def format_run_file(settings: Mapping[str, Any]) -> str:
    """Return the settings as TOML."""
    return format_toml({**settings, "data": {"corpora": (), "valid_corpora": (), **settings["data"]}})
