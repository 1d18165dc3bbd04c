"""A whole text model as a folder that transformers loads by `from_pretrained`, with its tokenizer where it can be one.

A network with its norms behind the sub-layers is a `MarianMTModel`, or BART's where positions are learned and the
embedding has a norm; one with them before is a Pegasus model.

config.json  generation_config.json  model.safetensors
source.spm  target.spm  vocab.json (and target_vocab.json)  tokenizer_config.json     where both are SentencePiece
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from attendo.errors import AttendoError, ModelError, UsageError
from attendo.interop import marian, pegasus, to_bart
from attendo.interop.certificate import Party
from attendo.interop.ctranslate2_folder import Precision, longest_of, require, write_json
from attendo.interop.parties import MarianParty, OurNetwork
from attendo.interop.sentences import prefixes_of
from attendo.interop.transformers_generation import transformers_settings
from attendo.interop.vocabularies import ids_of, names_of, sentencepiece_file
from attendo.interop.without_bars import without_bars
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text_model import TextModel


@dataclass(frozen=True)
class _Kind:
    """A class of transformers."""

    name: str
    called: str  # in an error
    obstacles: Callable[[ModelConfig], list[str]]
    make: Callable[[Transformer, int], Any]
    remark: str = ""

    @property
    def note(self) -> str:
        return f"{self.name} loads it, and so does AutoModelForSeq2SeqLM{self.remark}"


_MARIAN = _Kind("MarianMTModel", "MarianMTModel", marian.obstacles, marian.to_marian)
_BART = _Kind("BartForConditionalGeneration", "BART model", to_bart.obstacles, to_bart.to_bart)
_PEGASUS = _Kind(
    "PegasusForConditionalGeneration",
    "Pegasus model",
    pegasus.obstacles,
    pegasus.to_pegasus,
    "; a MarianMTModel has its norms elsewhere, and answers something else",
)


def _kind(model: TextModel) -> _Kind:
    config = model.network.config
    if config.norm == "pre":
        return _PEGASUS
    return _BART if config.embedding_norm and config.positions == "learned" else _MARIAN


def write_marian(model: TextModel, folder: Path, precision: Precision) -> list[str]:
    """Into a folder that is there and empty. Says what it could not take along."""
    if precision == "int8":
        raise UsageError("precision int8 is not for hf: take float32 or float16")
    require("transformers")
    kind = _kind(model)
    if reasons := _obstacles(model, kind):
        raise ModelError(f"a {kind.called} cannot hold this network: {'; '.join(reasons)}")
    theirs = kind.make(model.network, longest_of(model))
    theirs.to(dtype=getattr(torch, precision))
    settings, notes = transformers_settings(model.generation, longest_of(model))
    _, begin = prefixes_of(model)
    theirs.generation_config.update(**settings, forced_bos_token_id=begin[0] if begin else None)
    try:
        with without_bars():
            theirs.save_pretrained(folder)
    except SafetensorError as error:
        raise AttendoError(f"{folder / 'model.safetensors'} cannot be written: {error}") from None
    write_tokenizers = to_bart.write_tokenizer if kind is _BART else _write_tokenizers
    return [kind.note, *notes, *write_tokenizers(model, folder)]


def marian_parties(model: TextModel, folder: Path) -> tuple[Party, Party]:
    import transformers

    with without_bars():
        theirs = getattr(transformers, _kind(model).name).from_pretrained(folder, local_files_only=True)
    _, begin = prefixes_of(model)
    return OurNetwork(model.network, "hf", begin), MarianParty(theirs, begin)


def _obstacles(model: TextModel, kind: _Kind) -> list[str]:
    """All of them: whoever mends one should not meet the next only then."""
    before, begin = prefixes_of(model)
    taken = kind is _BART and to_bart.begins_sources(model)
    of_texts = {
        f"it puts {' '.join(model.generation.source_prefix)} before every source": not before or taken,
        f"its answers begin with {' '.join(model.generation.target_prefix)}, more than one token": len(begin) <= 1,
    }
    return [*(reason for reason, fit in of_texts.items() if not fit), *kind.obstacles(model.network.config)]


def _write_tokenizers(model: TextModel, folder: Path) -> list[str]:
    tokenizers = {"source": model.source_tokenizer, "target": model.target_tokenizer}
    names = {side: names_of(tokenizer) for side, tokenizer in tokenizers.items()}
    files = {side: sentencepiece_file(tokenizer) for side, tokenizer in tokenizers.items()}
    for side, file in files.items():
        if file is None:
            kind = f"that of the {side} is of {tokenizers[side].kind}"
            return [f"the tokenizers stay behind: a MarianTokenizer is of sentencepiece, {kind}"]
    for side, file in files.items():
        (folder / f"{side}.spm").write_bytes(file or b"")
    apart = names["source"] != names["target"]
    write_json(folder / "vocab.json", ids_of(names["source"]))
    if apart:
        write_json(folder / "target_vocab.json", ids_of(names["target"]))
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": apart, "model_max_length": longest_of(model)}
    write_json(folder / "tokenizer_config.json", settings)
    return []
