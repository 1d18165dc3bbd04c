"""Text model as a CTranslate2 folder: network, vocabularies, tokenizers and decoding defaults.

model.bin  config.json  shared_vocabulary.json (or source_ and target_)     read by CTranslate2
joint.* (or source.* and target.*)  generation.json  about.json             read by attendo, as in a model folder
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attendo.errors import MessagePart, ModelError, UsageError, require_package, shorten
from attendo.interop.certificate import ComparedSystem
from attendo.interop.certify import model_symbols
from attendo.interop.compared_systems import CTranslate2System, TorchSystem
from attendo.interop.ctranslate2.converter import to_ctranslate2
from attendo.interop.errors import convert_errors
from attendo.interop.exported_files import (
    MAX_SEQUENCE_LENGTH,
    PRECISIONS,
    ExportPrecision,
    check_export,
    model_max_length,
    write_text_files,
)
from attendo.interop.huggingface.vocabulary import sentencepiece_bytes, vocabulary_names
from attendo.model_files import parse_json, read_bytes, read_json
from attendo.model_folder import load_tokenizers, require_listed
from attendo.nn.devices import int8_saturates, parse_device
from attendo.text import BOS, CONTROL_PIECES, EOS, UNK, Tokenizer
from attendo.text_model import TextModel

_EXPORT_AGAIN = "export the model again"


@dataclass(frozen=True)
class CTranslate2Model:
    """Contents of an exported CTranslate2 folder."""

    translator: Any  # a `ctranslate2.Translator`
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any]
    max_length: int  # tokens of a source or an output, including one control token

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Token names of source and target, by id."""
        return vocabulary_names(self.source_tokenizer), vocabulary_names(self.target_tokenizer)


def write_ctranslate2(model: TextModel, folder: Path, precision: ExportPrecision) -> list[MessagePart]:
    """Write into an existing empty folder. Return notes on what the format cannot store."""
    require_package("ctranslate2", "export", "an export to ctranslate2")
    tokenizers = model.source_tokenizer, model.target_tokenizer
    names = vocabulary_names(tokenizers[0]), vocabulary_names(tokenizers[1])
    to_ctranslate2(model.network, folder, precision, model_max_length(model), names)
    write_text_files(model, folder)
    overflows = [MessagePart("ctranslate2_int8_overflow")] if precision == "int8" and int8_saturates() else []
    return [*overflows, *_tokenizer_notes(tokenizers), *_prefix_notes(model, names)]


def _prefix_notes(model: TextModel, names: tuple[Sequence[str], Sequence[str]]) -> list[MessagePart]:
    """Return notes on prefixes that attendo adds and that other programs must add themselves."""
    symbols = model_symbols(model)
    before, begin = (
        " ".join(side[token] for token in ids) for side, ids in zip(names, (symbols.before, symbols.begin), strict=True)
    )
    return [
        *([MessagePart("other_programs_add_source_prefix", pieces=before)] if before else []),
        *([MessagePart("other_programs_add_target_prefix", pieces=begin)] if begin else []),
    ]


def _tokenizer_notes(tokenizers: tuple[Tokenizer, Tokenizer]) -> list[MessagePart]:
    return [
        MessagePart("tokenizer_for_attendo_only", side=side, kind=tokenizer.kind)
        for side, tokenizer in zip(("source", "target"), tokenizers, strict=True)
        if sentencepiece_bytes(tokenizer) is None
    ]


def load_ctranslate2_systems(model: TextModel, folder: Path) -> tuple[ComparedSystem, ComparedSystem]:
    names = vocabulary_names(model.source_tokenizer), vocabulary_names(model.target_tokenizer)
    prefix = model_symbols(model).begin
    return TorchSystem(model.network, "ctranslate2", prefix), CTranslate2System(folder, *names, prefix)


def open_ctranslate2(folder: str | Path, device: str = "cpu", threads: int | None = None) -> CTranslate2Model:
    """Open a folder that `attendo export --to ctranslate2` wrote. `threads` defaults to torch's thread count.

    `device` is cpu, cuda, cuda:N, or auto for a GPU if CTranslate2 finds one.
    """
    require_package("ctranslate2", "export", "a CTranslate2 model")
    import ctranslate2

    folder = Path(folder)
    names, facts = check_export(folder, "ctranslate2", PRECISIONS)
    longest = facts.get("longest")
    if type(longest) is not int or not 1 <= longest <= MAX_SEQUENCE_LENGTH:
        raise ModelError(
            "manifest_longest_invalid", path=folder / "manifest.json", value=shorten(longest), limit=MAX_SEQUENCE_LENGTH
        )
    require_listed(folder, names, ("model.bin", "config.json", "generation.json"))
    generation = read_json(folder / "generation.json")
    source, target = load_tokenizers(folder, names)
    _check_vocabularies(folder, names, source, target)
    _check_config(folder / "config.json")
    device_type, number = parse_device(device, count := ctranslate2.get_cuda_device_count())
    if device_type == "cuda" and number >= count:
        raise UsageError("ctranslate2_gpu_missing", device=device, count=count)
    with convert_errors(partial(ModelError, "ctranslate2_load_failed", folder=folder)):
        translator = ctranslate2.Translator(
            str(folder),
            device=device_type,
            device_index=number,
            compute_type=compute_type(facts["precision"], device_type),
            intra_threads=torch.get_num_threads() if threads is None else threads,
        )
    return CTranslate2Model(translator, source, target, generation, longest)


def _check_vocabularies(folder: Path, names: Collection[str], source: Tokenizer, target: Tokenizer) -> None:
    """Raise a `ModelError` if CTranslate2's vocabularies differ from those of the tokenizers."""
    files = {"shared_vocabulary.json": source, "source_vocabulary.json": source, "target_vocabulary.json": target}
    for name, tokenizer in files.items():
        if (folder / name).exists():
            require_listed(folder, names, [name])
            try:
                found = parse_json(read_bytes(folder / name))
            except ValueError as error:
                raise ModelError("json_syntax_invalid", path=folder / name, reason=error, fix=_EXPORT_AGAIN) from None
            if found != vocabulary_names(tokenizer):
                raise ModelError("vocabulary_tokenizer_mismatch", path=folder / name, fix=_EXPORT_AGAIN)


def _check_config(path: Path) -> None:
    """Check settings that CTranslate2 would check only at inference, or never."""
    config = read_json(path)
    tokens = {"bos_token": CONTROL_PIECES[BOS], "eos_token": CONTROL_PIECES[EOS], "unk_token": CONTROL_PIECES[UNK]}
    expected = {**tokens, "decoder_start_token": CONTROL_PIECES[BOS], "add_source_bos": False, "add_source_eos": True}
    for name, value in expected.items():
        if config.get(name) != value:
            raise ModelError(
                "ctranslate2_config_mismatch",
                path=path,
                setting=name,
                value=shorten(config.get(name)),
                expected=value,
                fix=_EXPORT_AGAIN,
            )
    epsilon = config.get("layer_norm_epsilon")
    if epsilon is not None and not (type(epsilon) is float and 0 < epsilon < 1):
        raise ModelError("layer_norm_epsilon_invalid", path=path, value=shorten(epsilon), fix=_EXPORT_AGAIN)


def compute_type(precision: str, device: str = "cpu") -> str:
    """Return the precision if the device supports it, else float32, which CTranslate2 would choose with a warning."""
    import ctranslate2

    return precision if precision in ctranslate2.get_supported_compute_types(device) else "float32"
