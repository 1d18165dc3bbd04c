"""A whole text model as a folder that transformers loads by `from_pretrained`, with its tokenizer where it can be one.

A network with its norms behind the sub-layers is a `MarianMTModel`, one with them before is a Pegasus model.

config.json  generation_config.json  model.safetensors
source.spm  target.spm  vocab.json (and target_vocab.json)  tokenizer_config.json     where both are SentencePiece
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from attendo.errors import AttendoError, ModelError, UsageError
from attendo.interop.certificate import Party
from attendo.interop.ctranslate2_folder import Precision, longest_of, require, write_json
from attendo.interop.marian import to_marian
from attendo.interop.parties import MarianParty, OurNetwork
from attendo.interop.pegasus import to_pegasus
from attendo.interop.sentences import prefixes_of
from attendo.interop.vocabularies import ids_of, names_of, sentencepiece_file
from attendo.interop.without_bars import without_bars
from attendo.text_model import TextModel

_LONGEST_ANSWER = 512  # tokens, unless transformers is told otherwise


def write_marian(model: TextModel, folder: Path, precision: Precision) -> list[str]:
    """Into a folder that is there and empty. Says what it could not take along."""
    if precision == "int8":
        raise UsageError("precision int8 is not for hf: take float32 or float16")
    if any(prefixes_of(model)):
        raise ModelError("a Marian folder has no place for what this model puts before sources or answers")
    require("transformers")
    make = to_marian if model.network.config.norm == "post" else to_pegasus
    marian: Any = make(model.network, longest_of(model))
    marian.to(dtype=getattr(torch, precision))
    settings = marian.generation_config
    settings.max_length = min(_LONGEST_ANSWER, longest_of(model))  # left out, answers end after 20 tokens
    settings.num_beams = model.generation.beam
    try:
        with without_bars():
            marian.save_pretrained(folder)
    except SafetensorError as error:
        raise AttendoError(f"{folder / 'model.safetensors'} cannot be written: {error}") from None
    return _write_tokenizers(model, folder)


def marian_parties(model: TextModel, folder: Path) -> tuple[Party, Party]:
    from transformers import MarianMTModel, PegasusForConditionalGeneration

    kind = MarianMTModel if model.network.config.norm == "post" else PegasusForConditionalGeneration
    with without_bars():
        theirs = kind.from_pretrained(folder, local_files_only=True)
    return OurNetwork(model.network, "hf"), MarianParty(theirs)


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
