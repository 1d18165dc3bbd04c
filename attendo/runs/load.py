"""Loads a model from any folder: a model folder, an export, or a checkpoint of a run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from attendo.data.prepared import open_prepared
from attendo.errors import AttendoError, ModelError
from attendo.interop import load as opening
from attendo.interop.foreign_folder import list_read_files
from attendo.model_files import read_json
from attendo.model_folder import StoredModel, load_model, load_weights, tensor_mismatches
from attendo.runs.config import load_run_config
from attendo.runs.weights import initial_model
from attendo.text_model import TextModel, pick_device
from attendo.train.checkpoint import FORMAT, Checkpoints, eval_weights
from attendo.train.guided_alignment import keep_guided_head


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """Load the model in a folder. `device` is cpu, cuda or auto: a GPU if there is one that the folder supports.

    A folder exported to `onnx` or `ctranslate2` runs on that engine. A checkpoint of a run, such as
    runs/x/checkpoints/step-00001000, provides the weights; the rest is read from the run.
    """
    folder = Path(folder)
    return load_checkpoint(folder, device) if is_checkpoint(folder) else opening.load(folder, device)


def load_models(model: Path, ensemble: Sequence[Path], draft: Path | None, device: str) -> TextModel:
    """Load a model with the other members of its ensemble, and with a draft model."""
    text_model = load(model, device)
    if ensemble:
        text_model = text_model.ensemble([load(each, device) for each in ensemble])
    return text_model if draft is None else text_model.with_draft(load(draft, device))


def list_model_files(folder: Path) -> list[Path]:
    """Return the files that change with the model: those that `load` may read."""
    if is_checkpoint(folder):
        folder = folder.resolve()
        run = folder.parent.parent
        outside = (run / "run.toml", run / "model" / "generation.json")
        return [*sorted(folder.iterdir()), *(path for path in outside if path.is_file())]
    if opening.is_foreign_model(folder):
        return list_read_files(folder)
    return [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())


def is_checkpoint(folder: Path) -> bool:
    try:
        return read_json(folder / "manifest.json").get("format") == FORMAT
    except ModelError:
        return False  # the next reader reports the error


def load_checkpoint(folder: Path, device: str = "auto") -> TextModel:
    """Load the model of a run at this checkpoint: with the EMA of the weights, if the run has one.

    Every file of the checkpoint is compared with its manifest first.
    """
    folder = folder.resolve()
    run, checkpoints = folder.parent.parent, Checkpoints(folder.parent)
    steps = {checkpoints.path(step).name: step for step in checkpoints.steps()}
    if folder.name not in steps or not (run / "run.toml").is_file():
        raise ModelError("checkpoint_outside_run", folder=folder)
    weights = eval_weights(checkpoints.load(steps[folder.name]))
    stored = _load_run_model(run)
    if faults := tensor_mismatches(dict(stored.network.named_parameters()), weights):
        raise ModelError(
            "checkpoint_model_mismatch", folder=folder, run=run, faults="; ".join(faults[:5]), count=len(faults)
        )
    load_weights(stored.network, weights)
    # The stored scores and limits are those of the best checkpoint, which may be another one.
    network, scores = stored.network.to(pick_device(device)).eval(), keep_guided_head(stored.scores)
    return TextModel(replace(stored, network=network, scores=scores, calibration={}))


def _load_run_model(run: Path) -> StoredModel:
    """Load the model folder, which a run writes at its best validation, or build the initial model of the run."""
    if (run / "model" / "manifest.json").is_file():
        return load_model(run / "model")
    config = load_run_config(run)
    try:
        with torch.random.fork_rng(devices=[]):
            return initial_model(config, open_prepared(config.data.prepared or run / "data"))
    except AttendoError as error:
        raise ModelError("run_data_unreadable", run=run, error=error) from None
