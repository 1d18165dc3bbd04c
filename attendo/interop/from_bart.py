"""BART as transformers keeps it: post-norm, learned positions, a norm on the embedding, pieces made of bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

from attendo.errors import ModelError
from attendo.interop.bart_family import network_from, settings_of
from attendo.interop.foreign_generation import behind_prefix, generation_from
from attendo.interop.foreign_vocabulary import named, read_vocabulary, require_fit, unspoken
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.interop.imported import Imported, token_id
from attendo.interop.rearranged import rearranged
from attendo.interop.tokenizer_json import byte_pairs_from_json, has_pieces
from attendo.text.byte_pairs import BytePairs, Merge, read_merges

_MOST_LACKING = 0.1  # of the pieces
_DEFAULTS: dict[str, Any] = {"vocab_size": 50265, "activation_function": "gelu", "scale_embedding": False}
BEGIN, UNUSED_POSITIONS = "<<s>>", 2  # how its own bos is called here; positions that no token ever has


def from_bart(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> Imported:
    """Without tokenizers the folder needs no more than config.json and weights."""
    settings = settings_of(folder, _DEFAULTS)
    pad, eos = token_id(folder, "pad_token_id", 1), token_id(folder, "eos_token_id", 2)
    start = token_id(folder, "decoder_start_token_id", eos)
    merges, vocabulary = _pieces(folder) if with_tokenizers else ((), {})
    if with_tokenizers:
        require_fit(folder.path, vocabulary, settings["vocab_size"])
    first = unspoken(vocabulary)
    order = rearranged(settings["vocab_size"], pad, vocabulary.get("<unk>", 3), start, eos, first)
    choices = {
        "norm": "post",
        "embedding_norm": True,
        "positions": "learned",
        "position_offset": UNUSED_POSITIONS,
        "max_length": settings["max_position_embeddings"],
    }
    network = network_from(folder, settings, choices, order, order)
    if not with_tokenizers:
        taken = generation_from(folder, order)
        return Imported(folder, network, order, order, generation=taken.settings, notes=taken.notes)
    names, symbols = named(vocabulary, order, first)
    tokenizer = BytePairs(merges, names, symbols)
    taken = generation_from(folder, order, symbols)
    lacking = _lacking(folder, merges, vocabulary)
    generation = behind_prefix(taken.settings) | ({"source_prefix": [BEGIN]} if BEGIN in symbols else {})
    return Imported(folder, network, order, order, tokenizer, tokenizer, generation, (*taken.notes, *lacking))


def _lacking(folder: HuggingFaceFolder, merges: Sequence[Merge], vocabulary: Mapping[str, int]) -> list[str]:
    """What merges make and the vocabulary has no id for is read as unknown: a little is told, much is refused."""
    made = ["".join(merge) for merge in merges]
    unknown = [piece for piece in made if piece not in vocabulary]
    told = f"{len(unknown)} of {len(made)} pieces that its merges make are not in its vocabulary, such as {unknown[:3]}"
    if len(unknown) > _MOST_LACKING * len(made):
        raise ModelError("merges_vocabulary_mismatch", path=folder.path, reason=told)
    return [f"{told}, and are read as unknown"] if unknown else []


def _pieces(folder: HuggingFaceFolder) -> tuple[tuple[Merge, ...], dict[str, int]]:
    """Merges, and the ids of the vocabulary, from two files or from one."""
    if folder.told("tokenizer_config.json", "add_prefix_space").flag():
        raise ModelError("add_prefix_space_unsupported", path=folder.path / "tokenizer_config.json")
    if not (folder.path / "vocab.json").is_file() and has_pieces(folder):
        return byte_pairs_from_json(folder)
    return read_merges(folder.file("merges.txt")), read_vocabulary(folder.file("vocab.json"))
