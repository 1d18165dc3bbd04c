"""The mean of a run's checkpoints as a model."""

from collections.abc import Sequence
from pathlib import Path

import torch

from attendo.data.prepared import open_prepared
from attendo.recipes.first_model import first_model
from attendo.recipes.run_config import stored_config
from attendo.text_model import TextModel
from attendo.train.averaging import average_checkpoints
from attendo.train.checkpoint import Checkpoints


def averaged_model(run: Path, steps: Sequence[int]) -> TextModel:
    """The model that the run began with, but for its weights; scores of single checkpoints do not hold for it."""
    config = stored_config(run)
    model = first_model(config, open_prepared(config.data.prepared or run / "data"))
    weights = average_checkpoints(Checkpoints(run / "checkpoints"), steps)
    with torch.no_grad():
        for name, weight in model.network.named_parameters():
            weight.copy_(weights[name])
    return TextModel(model)
