"""The mean of several checkpoints' weights: often better than any of them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from attendo.errors import UsageError
from attendo.store import misfits
from attendo.train.checkpoint import Checkpoints
from attendo.train.snapshot import averaged_weights


def average_checkpoints(checkpoints: Checkpoints, steps: Sequence[int]) -> dict[str, Tensor]:
    """Weight by weight, summed in double precision. One checkpoint after the other is read, not all at once."""
    return average_weights([checkpoints.path(step) for step in steps], checkpoints)


def average_weights(folders: Sequence[Path], checkpoints: Checkpoints) -> dict[str, Tensor]:
    if not folders:
        raise UsageError(f"{checkpoints.folder} has no checkpoint to average")
    total: dict[str, Tensor] = {}
    for folder in folders:
        weights = averaged_weights(checkpoints.load(int(folder.name.removeprefix("step-"))))
        if total and (faults := misfits({name: weight.float() for name, weight in total.items()}, weights)):
            raise UsageError(f"{folder} cannot be averaged with {folders[0]}: {faults[0]}")
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    with torch.no_grad():
        return {name: (weight / len(folders)).float() for name, weight in total.items()}
