"""The model that a run begins with: new weights, or those of the model it goes on from."""

from pathlib import Path
from typing import Any

import torch

from attendo.data.prepared import Prepared, longest_side
from attendo.decode.config import GenerationConfig
from attendo.errors import DataError, UsageError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.recipes.run_config import RunConfig
from attendo.store import StoredModel, load_model
from attendo.text_model.prefixes import prefixes_of

SAMPLE_PAIRS = 1000  # validation pairs that the model folder keeps, to be checked with later


def first_model(config: RunConfig, data: Prepared) -> StoredModel:
    """One that goes on answers by the settings it had, which say what stands before every source and answer."""
    source, target = data.source_tokenizer, data.target_tokenizer
    generation: dict[str, Any] = {}
    if config.start_from is None:
        generator = torch.Generator().manual_seed(config.seed)
        network = Transformer(config.network(source.vocab_size, target.vocab_size), generator)
    else:
        network, generation = _going_on(config.start_from, config, data)
    _refuse_too_long(network.config, data, max(map(len, prefixes_of(GenerationConfig(**generation), source, target))))
    return StoredModel(network, source, target, generation, sample=data.valid[:SAMPLE_PAIRS])


def _going_on(model: Path, config: RunConfig, data: Prepared) -> tuple[Transformer, dict[str, Any]]:
    old = load_model(model)
    if (data.source_tokenizer, data.target_tokenizer) != (old.source_tokenizer, old.target_tokenizer):
        raise UsageError(
            f"{data.folder} was prepared with other tokenizers than {model} has: prepare it with start_from set to it"
        )
    network = Transformer(old.network.config.replace(**config.model))
    network.load_state_dict(old.network.state_dict())
    return network, old.generation


def _refuse_too_long(network: ModelConfig, data: Prepared, prefix: int) -> None:
    """Before the first step, not when the sentence comes up in the middle of the run."""
    if network.positions != "learned":
        return
    for corpus in data.corpora:
        if (length := longest_side(corpus) + 1 + prefix) > network.max_length:
            raise DataError(
                f"{corpus.name} has a sentence of {length} tokens, more than model.max_length {network.max_length}: "
                "raise it, choose other positions, or lower data.max_length"
            )
