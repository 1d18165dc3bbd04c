"""The files of a `MarianTokenizer` of transformers: source.spm, target.spm, vocab.json (and target_vocab.json)."""

from pathlib import Path

from attendo.interop.ctranslate2_folder import longest_of, write_json
from attendo.interop.rearranged import Rearranged
from attendo.interop.vocabularies import ids_of, names_of, sentencepiece_file
from attendo.text_model import TextModel


def begins_sources(model: TextModel) -> bool:
    """Whether sources begin as it has them: with nothing."""
    return not model.generation.source_prefix


def write_tokenizer(model: TextModel, folder: Path, order: Rearranged) -> list[str]:
    """Says why they stay behind, if they do. Their ids are ours."""
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
