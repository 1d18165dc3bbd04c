"""Weights of a run: the initial model, the final weights, and the average of checkpoints."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attendo.data.batch import RaggedArray
from attendo.data.prepared import PreparedData, measure_longest_side, open_prepared
from attendo.decode.config import GenerationConfig
from attendo.decode.kinds import drop_unsupported
from attendo.errors import DataError, ModelError, UsageError
from attendo.interop.load import load_stored_model
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.parallel import MIN_CANVAS, ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel, load_model, load_weights
from attendo.runs.config import (
    RunConfig,
    check_kind_settings,
    check_mrt_data,
    check_prefix_lm_settings,
    derive_generation_settings,
    load_run_config,
)
from attendo.text_model import TextModel
from attendo.text_model.inputs import encode_symbols
from attendo.text_model.sentence_splitting import measure_sources
from attendo.train.checkpoint import Checkpoints, average_checkpoints, eval_weights
from attendo.train.config import TrainConfig, check_guided_alignment
from attendo.train.guided_alignment import guided_head_entry

MEASURED_SOURCES = 2000  # training sources sampled to measure how many are single sentences
_READ_PAIRS = 65_536  # pairs read at once
SAMPLE_PAIRS = 1000  # validation pairs stored in the model folder for later checks
Weights = dict[str, Tensor]


def initial_model(config: RunConfig, data: PreparedData) -> StoredModel:
    """Return the model that training starts from.

    With `start_from` it keeps the model card and decoding defaults of that model, unless the run sets them.
    """
    source, target = data.source_tokenizer, data.target_tokenizer
    about = config.about.to_dict()
    if config.start_from is None:
        generation = derive_generation_settings(data.window, data.cut_source, data.context_sentences)
        generator = torch.Generator().manual_seed(config.seed)
        network = make_network(config.make_model_config(source.vocab_size, target.vocab_size), generator)
    else:
        old = load_stored_model(config.start_from)
        network, about = _load_start_network(old, config, data), about or old.about
        stored = GenerationConfig.with_new_names(old.generation, warn=False)
        if network.config.kind != old.network.config.kind:
            stored = drop_unsupported(stored, network.config.kind)
        generation = {**stored, **derive_generation_settings(None, data.cut_source, data.context_sentences)}
    generation = {**generation, **config.generation}
    check_kind_settings(network.config.kind, config.train, generation)
    if network.config.prefix_lm:
        check_prefix_lm_settings(config.train)
    check_mrt_data(config.train, data.window is not None)
    _check_data_fits_network(network.config, data)
    _check_dropout(config, data)
    symbols = encode_symbols(GenerationConfig(**generation), source, target)
    _check_max_length(network.config, data, max(symbols.source_tokens, len(symbols.begin)))
    if data.window is None and (measured := measure_training_sources(data)):
        about = {**about, "trained_on": measured}
    scores = guided_head_entry(network.config, config.train) if is_guided(network.config, config.train, data) else {}
    sample = data.valid[:SAMPLE_PAIRS]
    return StoredModel(network, source, target, generation, scores, sample=sample, about=about)


def is_guided(network: ModelConfig, train: TrainConfig, data: PreparedData) -> bool:
    """Whether the alignments of the data guide a head. Raise if they cannot, or if settings need them."""
    if not data.has_links:
        if train.guided_alignment or train.guided_alignment_layer is not None:
            raise UsageError("guided_alignment_without_alignments")
        return False
    check_guided_alignment(network, train)
    return train.guided_alignment_weight > 0


def measure_training_sources(data: PreparedData) -> dict[str, Any] | None:
    """Return the fields of `TrainingSources`, from sources sampled evenly over all corpora."""
    every = max(1, data.pairs // MEASURED_SOURCES)
    ids = [
        corpus.shards.read(number, number + 1)[0][0]
        for corpus in data.corpora
        for number in range(0, len(corpus.shards), every)
    ]
    return measure_sources([data.source_tokenizer.decode(each) for each in ids], [len(each) for each in ids])


def check_start_network(config: RunConfig, before: ModelConfig) -> ModelConfig:
    """Return the network's settings of a run that starts from a model. Raise if its weights or settings do not fit."""
    after = before.replace(**config.model)
    if before.kind not in (after.kind, "autoregressive"):
        raise UsageError("start_from_kind_mismatch", before=before.kind, after=after.kind)
    check_kind_settings(after.kind, config.train, config.generation)
    if config.train.objective == "ngrams" and before.kind != "graph":
        raise UsageError("ngrams_needs_trained_graph", kind=before.kind)
    if after.prefix_lm:
        check_prefix_lm_settings(config.train)
    return after


def _load_start_network(old: StoredModel, config: RunConfig, data: PreparedData) -> Transformer:
    if (data.source_tokenizer, data.target_tokenizer) != (old.source_tokenizer, old.target_tokenizer):
        raise UsageError("start_from_tokenizer_mismatch", folder=data.folder, model=config.start_from)
    before, after = old.network.config, check_start_network(config, old.network.config)
    network = make_network(after, torch.Generator().manual_seed(config.seed))
    network.load_state_dict(old.network.state_dict(), strict=(before.kind, before.canvas) == (after.kind, after.canvas))
    return network


def _check_data_fits_network(network: ModelConfig, data: PreparedData) -> None:
    if network.continues_text and data.window is None:
        raise UsageError("pairs_for_decoder_only", folder=data.folder)
    if data.window is not None and not network.continues_text:
        raise UsageError("running_text_for_encoder", folder=data.folder)
    if network.prefix_lm and data.source_tokenizer != data.target_tokenizer:
        raise UsageError("prefix_lm_tokenizers_differ")


def _check_dropout(config: RunConfig, data: PreparedData) -> None:
    """Check prepared data. A run that prepares its own text is checked with its settings."""
    if config.tokenizer.dropout and data.window is not None:
        raise UsageError("tokenizer_dropout_for_windows", folder=data.folder, window=data.window)


def _check_max_length(network: ModelConfig, data: PreparedData, prefix: int) -> None:
    """Check lengths before the first step, not when a long sentence occurs during training."""
    if network.positions != "learned":
        return
    control = 1 if data.window is None else 0  # BOS replaces the last token of a window
    what, setting = ("a sentence", "max_length") if data.window is None else ("windows", "window")
    for corpus in data.corpora:
        if (length := measure_longest_side(corpus) + control + prefix) > network.max_length:
            raise DataError(
                "training_text_exceeds_positions",
                corpus=corpus.name,
                what=what,
                length=length,
                limit=network.max_length,
                setting=setting,
            )


def count_unfit_pairs(network: Transformer, data: PreparedData) -> int:
    """Count the pairs whose target has more tokens than the canvas of a ctc or graph network has positions."""
    if not isinstance(network, ParallelTransformer) or not network.upsample:
        return 0
    ends = 2 if network.config.kind == "graph" else 0  # the first and the last vertex emit no token
    count = 0
    for corpus in data.corpora:
        for first in range(0, len(corpus.shards), _READ_PAIRS):
            source, target = corpus.shards.read(first, min(first + _READ_PAIRS, len(corpus.shards)))
            canvas = np.maximum(network.upsample * (source.lengths + 1), MIN_CANVAS)
            repeats = _count_repeats(target) if network.config.kind == "ctc" else 0  # each needs a blank before it
            count += int((target.lengths + repeats + ends > canvas).sum())
    return count


def _count_repeats(rows: RaggedArray) -> NDArray[np.int64]:
    """Return the number of tokens in each row that equal the token before."""
    repeats = np.zeros(len(rows.ids) + 1, np.int64)
    repeats[2:] = np.cumsum(rows.ids[1:] == rows.ids[:-1])  # repeats[i]: among the first i tokens of all rows
    first = rows.offsets[:-1]
    # The first token of a row has no token before it, also if it equals the last one of the row before.
    after_first = np.minimum(first + 1, rows.offsets[1:])
    return repeats[rows.offsets[1:]] - repeats[after_first]


def load_final_weights(
    config: TrainConfig, checkpoints: Checkpoints, best_step: int | None, model_folder: Path, device: torch.device
) -> tuple[Weights | None, str | None]:
    """Return the weights chosen by `train.final`, and a fault, which is shown to the user while the run still ends.

    The weights are None if the network already has them. The model folder is written at every best validation.
    """
    if config.final == "average" and (steps := checkpoints.steps()):
        damaged: list[str] = []
        mean = average_checkpoints(checkpoints, steps[-config.average :], damaged)
        return mean, f"left out of the mean: {damaged[0]}" if damaged else None
    if config.final != "best" or best_step is None:
        return None, None
    weights = _load_best_weights(checkpoints, best_step, model_folder, device)
    fault = f"the weights of the best step, {best_step}, could not be kept: the model has the last"
    return weights, None if weights else fault


def _load_best_weights(
    checkpoints: Checkpoints, best_step: int, model_folder: Path, device: torch.device
) -> Weights | None:
    with suppress(ModelError):
        return eval_weights(checkpoints.load(best_step))
    with suppress(ModelError):
        model = load_model(model_folder, device)
        if model.scores.get("best_step") == best_step:
            return dict(model.network.named_parameters())
    return None


def average_model(run: Path, steps: Sequence[int]) -> TextModel:
    """Return the run's initial model with averaged weights. Scores of single checkpoints do not apply to it."""
    config = load_run_config(run)
    model = initial_model(config, open_prepared(config.data.prepared or run / "data"))
    weights = average_checkpoints(Checkpoints(run / "checkpoints"), steps)
    load_weights(model.network, weights)
    return TextModel(model)
