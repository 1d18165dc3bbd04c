"""The same weights as a `BartForConditionalGeneration` of transformers, and its tokenizer where it is one of BART's.

vocab.json  merges.txt  tokenizer_config.json
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from attendo.errors import ModelError
from attendo.interop.ctranslate2_folder import longest_of, write_json
from attendo.interop.from_bart import BEGIN, UNUSED_POSITIONS
from attendo.interop.transformers_weights import block_obstacles, filled, settings_of
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import CONTROL_PIECES
from attendo.text.byte_pairs import BytePairs
from attendo.text_model import TextModel

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration

_START = "<start>"  # what answers begin from, which is never written: `<s>` is what their texts begin with


def obstacles(config: ModelConfig) -> list[str]:
    """Why a BART model cannot hold such a network, one line a reason; nothing where it can."""
    if config.decoder_only:
        return ["it has no encoder"]
    sizes, unused = (config.source_vocab_size, config.target_vocab_size), UNUSED_POSITIONS
    fits = {
        f"norm is {config.norm}, not post": config.norm == "post",
        "it has a norm behind each stack": not config.has_final_norm,
        "it has no norm on the embedding": config.embedding_norm,
        f"positions are {config.positions}, not learned": config.positions == "learned",
        f"position_offset is {config.position_offset}, not {unused}": config.position_offset == unused,
        f"source and target have {sizes[0]} and {sizes[1]} tokens, not as many": sizes[0] == sizes[1],
        **block_obstacles(config),
    }
    return [reason for reason, fit in fits.items() if not fit]


def to_bart(network: Transformer, longest: int = 1024) -> "BartForConditionalGeneration":
    """A model in evaluation mode that gives the same logits, as `to_marian` makes one."""
    config = network.config
    if reasons := obstacles(config):
        raise ModelError(f"a BART model cannot hold this network: {'; '.join(reasons)}")
    from transformers import BartConfig, BartForConditionalGeneration

    settings = BartConfig(
        vocab_size=config.target_vocab_size,
        tie_word_embeddings=config.tie == "all",
        **settings_of(config, config.max_length),
    )
    with torch.random.fork_rng(devices=[]):  # its first values are thrown away; the caller's must not move on
        model = BartForConditionalGeneration(settings)
    return filled(model, network)


def begins_sources(model: TextModel) -> bool:
    """Whether sources begin as a BartTokenizer has them."""
    return isinstance(model.source_tokenizer, BytePairs) and model.generation.source_prefix == (BEGIN,)


def write_tokenizer(model: TextModel, folder: Path) -> list[str]:
    """Says why it stays behind, if it does."""
    tokenizer = model.source_tokenizer
    if not isinstance(tokenizer, BytePairs) or tokenizer is not model.target_tokenizer:
        return [f"the tokenizers stay behind: a BartTokenizer is of byte_pairs, this one is of {tokenizer.kind}"]
    if not begins_sources(model):
        return [f"the tokenizers stay behind: a BartTokenizer puts {BEGIN} before every source, this model does not"]
    names = {BEGIN: "<s>", CONTROL_PIECES[2]: _START}
    pieces = [*CONTROL_PIECES, *tokenizer.entries]
    write_json(folder / "vocab.json", {names.get(piece, piece): number for number, piece in enumerate(pieces)})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in tokenizer.merges)]
    (folder / "merges.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
    settings = {
        "tokenizer_class": "BartTokenizer",
        "add_prefix_space": False,
        "additional_special_tokens": [_START],
        "model_max_length": longest_of(model),
    }
    write_json(folder / "tokenizer_config.json", settings)
    return []
