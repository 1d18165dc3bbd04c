"""The weights that the model of a run gets: the best, the mean of the last checkpoints, or the last."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attendo.errors import ModelError
from attendo.store import load_model
from attendo.train.averaging import average_checkpoints
from attendo.train.checkpoint import Checkpoints
from attendo.train.config import TrainConfig
from attendo.train.snapshot import averaged_weights

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Final:
    """No weights: those that the network has. A fault is told to the user; the run ends all the same."""

    weights: Weights | None = None
    fault: str | None = None


def final_weights(
    config: TrainConfig, checkpoints: Checkpoints, best: int | None, written: Path, device: torch.device
) -> Final:
    """By `train.final`, from checkpoints or from the model folder, which is written at every best validation."""
    if config.final == "average" and (kept := checkpoints.steps()):
        damaged: list[str] = []
        mean = average_checkpoints(checkpoints, kept[-config.average :], damaged)
        return Final(mean, f"left out of the mean: {damaged[0]}" if damaged else None)
    if config.final != "best" or best is None:
        return Final()
    weights = _of_best_step(checkpoints, best, written, device)
    return Final(
        weights, None if weights else f"the weights of the best step, {best}, could not be kept: the model has the last"
    )


def _of_best_step(checkpoints: Checkpoints, best: int, written: Path, device: torch.device) -> Weights | None:
    with suppress(ModelError):
        return averaged_weights(checkpoints.load(best))
    with suppress(ModelError):
        model = load_model(written, device)
        if model.scores.get("best_step") == best:
            return dict(model.network.named_parameters())
    return None
