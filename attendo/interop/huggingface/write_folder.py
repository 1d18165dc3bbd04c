"""Text model as a folder for `from_pretrained` of transformers, with its tokenizer if transformers has such a class.

config.json  generation_config.json  model.safetensors, and the tokenizer files
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError

from attendo.errors import AttendoError, MessagePart, ModelError, UsageError, require_package
from attendo.interop.certificate import ComparedSystem
from attendo.interop.certify import model_symbols
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.errors import join_reasons, unmet_conditions
from attendo.interop.exported_files import ExportPrecision, model_max_length
from attendo.interop.huggingface.folder import no_progress_bars, read_folder
from attendo.interop.huggingface.generation import export_generation
from attendo.interop.huggingface.model_classes import (
    BART,
    BLENDERBOT,
    M2M100,
    MARIAN,
    MBART,
    PEGASUS,
    HFModelClass,
    Permutations,
    identity_permutations,
)
from attendo.interop.huggingface.read_bart import IMPORTED_BOS
from attendo.interop.huggingface.t5_classes import T5, UMT5, T5ModelClass
from attendo.interop.huggingface.t5_settings import prepare_t5_oracle, repair_t5_cache
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.interop.huggingface.write_t5_tokenizers import t5_permutation, write_t5_tokenizer
from attendo.interop.huggingface.write_tokenizers import (
    fairseq_permutation,
    has_bart_prefix,
    has_language_prefix,
    has_no_source_prefix,
    write_bart_tokenizer,
    write_blenderbot_tokenizer,
    write_marian_tokenizer,
    write_multilingual_tokenizer,
)
from attendo.model.config import ModelConfig
from attendo.text import EOS
from attendo.text_model import TextModel


class _TokenizerWriter(NamedTuple):
    has_source_prefix: Callable[[TextModel], bool]
    write: Callable[[TextModel, Path, VocabularyPermutation], MessagePart | None]  # returns a reason for not writing


_MARIAN = _TokenizerWriter(has_no_source_prefix, write_marian_tokenizer)
_MULTILINGUAL = _TokenizerWriter(has_language_prefix, write_multilingual_tokenizer)
_T5 = _TokenizerWriter(has_bart_prefix, write_t5_tokenizer)
_TOKENIZER_WRITERS: dict[HFModelClass, _TokenizerWriter] = {
    MARIAN: _MARIAN,
    PEGASUS: _MARIAN,
    BART: _TokenizerWriter(has_bart_prefix, write_bart_tokenizer),
    BLENDERBOT: _TokenizerWriter(has_no_source_prefix, write_blenderbot_tokenizer),
    T5: _T5,
    UMT5: _T5,
    MBART: _MULTILINGUAL,
    M2M100: _MULTILINGUAL,
}


def choose_model_class(config: ModelConfig) -> HFModelClass:
    """Return the model class closest to the network."""
    if config.positions == "relative":
        return UMT5 if config.relative_bias == "per_layer" else T5
    if config.embedding_norm and config.positions == "learned":
        return MBART if config.norm == "pre" else BART
    if config.norm == "pre" and config.positions == "learned":
        return BLENDERBOT
    if config.norm == "pre":
        return M2M100 if config.position_layout == "fairseq" else PEGASUS
    return MARIAN


def write_transformers(model: TextModel, folder: Path, precision: ExportPrecision) -> list[MessagePart]:
    """Write into an existing empty folder. Return notes on what the format cannot store."""
    if precision == "int8":
        raise UsageError("hf_int8_unsupported")
    require_package("transformers", "hf", "an export to hf")
    kind = choose_model_class(model.network.config)
    orders = _vocabulary_permutations(model, kind)
    if reasons := _incompatibilities(model, kind, orders):
        raise ModelError("transformers_network_unsupported", model=kind.display_name, reasons=join_reasons(reasons))
    theirs = kind.build(model.network, model_max_length(model), orders)
    if IMPORTED_BOS in (symbols := model.target_tokenizer.symbols):
        begin_of_text = orders[1].rows[EOS + 1 + symbols.index(IMPORTED_BOS)]
        theirs.config.bos_token_id = theirs.generation_config.bos_token_id = begin_of_text
    theirs.to(dtype=getattr(torch, precision))
    settings, notes = export_generation(model.generation, model_max_length(model), orders[1])
    added = model_symbols(model)
    before, begin = added.before, added.begin
    theirs.generation_config.update(**settings, forced_bos_token_id=orders[1].rows[begin[0]] if begin else None)
    try:
        with no_progress_bars():
            theirs.save_pretrained(folder)
    except SafetensorError as error:
        raise AttendoError("weights_write_failed", path=folder / "model.safetensors", reason=error) from None
    if reason := _TOKENIZER_WRITERS[kind].write(model, folder, orders[1]):
        notes.append(MessagePart("tokenizers_not_exported", reason=reason))
        notes += [MessagePart("sources_need_prefix_ids", ids=orders[0].to_theirs(before))] if before else []
    class_note = MessagePart("loaded_by_pegasus_class" if kind is PEGASUS else "loaded_by_class", name=kind.name)
    if kind is UMT5 and not theirs.config.tie_word_embeddings:
        notes.append(MessagePart("umt5_scaled_by_transformers_5"))
    return [class_note, *notes]


def load_transformers_systems(model: TextModel, folder: Path) -> tuple[ComparedSystem, ComparedSystem]:
    import transformers

    kind = choose_model_class(model.network.config)
    with no_progress_bars():
        theirs = getattr(transformers, kind.name).from_pretrained(folder, local_files_only=True)
    if isinstance(kind, T5ModelClass):
        theirs = prepare_t5_oracle(theirs, read_folder(folder)) if kind is UMT5 else repair_t5_cache(theirs)
    begin = model_symbols(model).begin
    return TorchSystem(model.network, "hf", begin), TransformersSystem(
        theirs, _vocabulary_permutations(model, kind), begin
    )


def _vocabulary_permutations(model: TextModel, model_class: HFModelClass) -> Permutations:
    if model_class in (MARIAN, PEGASUS):
        return identity_permutations(model.network.config)
    order = t5_permutation(model) if isinstance(model_class, T5ModelClass) else fairseq_permutation(model)
    return order, order


def _incompatibilities(model: TextModel, model_class: HFModelClass, orders: Permutations) -> list[MessagePart]:
    """Return all reasons at once why the class cannot hold the model."""
    before, begin = model.generation.source_prefix, model.generation.target_prefix
    has_known_prefix = not before or _TOKENIZER_WRITERS[model_class].has_source_prefix(model)
    of_texts = {
        MessagePart("source_prefix_unsupported", prefix=" ".join(before)): has_known_prefix,
        MessagePart("source_suffix_unsupported", suffix=" ".join(model.generation.source_suffix)): (
            not model.generation.source_suffix
        ),
        MessagePart("target_prefix_too_long", prefix=" ".join(begin)): len(begin) <= 1,
    }
    return [*unmet_conditions(of_texts), *model_class.network_incompatibilities(model.network, orders)]
