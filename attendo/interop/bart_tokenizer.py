"""The files of a `BartTokenizer` of transformers: vocab.json, merges.txt, tokenizer_config.json."""

from pathlib import Path

from attendo.interop.ctranslate2_folder import longest_of, write_json
from attendo.interop.fairseq_order import fairseq_names
from attendo.interop.from_bart import BEGIN
from attendo.interop.rearranged import Rearranged
from attendo.text.byte_pairs import BytePairs
from attendo.text_model import TextModel


def begins_sources(model: TextModel) -> bool:
    """Whether sources begin as it has them."""
    return isinstance(model.source_tokenizer, BytePairs) and model.generation.source_prefix == (BEGIN,)


def write_tokenizer(model: TextModel, folder: Path, order: Rearranged) -> list[str]:
    """Says why it stays behind, if it does."""
    tokenizer = model.source_tokenizer
    if not isinstance(tokenizer, BytePairs) or tokenizer is not model.target_tokenizer:
        return [f"the tokenizers stay behind: a BartTokenizer is of byte_pairs, this one is of {tokenizer.kind}"]
    if not begins_sources(model):
        return [f"the tokenizers stay behind: a BartTokenizer puts {BEGIN} before every source, this model does not"]
    write_json(folder / "vocab.json", fairseq_names(tokenizer, order))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in tokenizer.merges)]
    (folder / "merges.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
    settings = {"tokenizer_class": "BartTokenizer", "add_prefix_space": False, "model_max_length": longest_of(model)}
    write_json(folder / "tokenizer_config.json", settings)
    return []
