"""The mean of a run's checkpoints as a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attendo.data.prepared import open_prepared
from attendo.model.transformer import Transformer
from attendo.recipes.first_model import SAMPLE_PAIRS
from attendo.recipes.run_config import RunConfig, read_run_file
from attendo.store import StoredModel, load_model
from attendo.text_model import TextModel
from attendo.train.averaging import average_checkpoints
from attendo.train.checkpoint import Checkpoints


def averaged_model(run: Path, steps: Sequence[int]) -> TextModel:
    """With the tokenizers and settings of the run; scores of single checkpoints do not hold for it and are left out."""
    config = RunConfig(**read_run_file(run / "run.toml"))
    data = open_prepared(config.data.prepared or run / "data")
    source, target = data.source_tokenizer, data.target_tokenizer
    generation: dict[str, Any] = {}
    about = config.about.told()
    if config.start_from is None:
        network = Transformer(config.network(source.vocab_size, target.vocab_size))
    else:
        old = load_model(config.start_from)
        network, generation, about = old.network, old.generation, about or old.about
    weights = average_checkpoints(Checkpoints(run / "checkpoints"), steps)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(weights[name])
    return TextModel(StoredModel(network, source, target, generation, sample=data.valid[:SAMPLE_PAIRS], about=about))
