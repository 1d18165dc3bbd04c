"""Reader of BART folders of transformers."""

from collections.abc import Mapping, Sequence

from attendo.errors import MessagePart, ModelError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.read_tokenizers import (
    build_names_and_symbols,
    has_tokenizer_model,
    non_text_ids,
    read_bpe_json,
    read_vocabulary,
    require_fit,
)
from attendo.interop.huggingface.read_weights import BART_DEFAULTS, build_network, read_settings
from attendo.interop.huggingface.vocabulary import build_permutation
from attendo.text.byte_level_bpe import ByteLevelBPE, Merge, read_merges

_MAX_MISSING_SHARE = 0.1  # of the merged pieces
IMPORTED_BOS, UNUSED_POSITIONS = "<<s>>", 2  # name of BART's own bos in attendo; unused first positions


def from_bart(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a model. Without tokenizers the folder needs only config.json and weights."""
    settings = read_settings(folder, BART_DEFAULTS)
    pad, eos = read_token_id(folder, "pad_token_id", 1), read_token_id(folder, "eos_token_id", 2)
    start = read_token_id(folder, "decoder_start_token_id", eos)
    merges, vocabulary = _read_bart_vocabulary(folder) if with_tokenizers else ((), {})
    if with_tokenizers:
        require_fit(folder.path, vocabulary, settings["vocab_size"])
    first = non_text_ids(vocabulary)
    order = build_permutation(settings["vocab_size"], pad, vocabulary.get("<unk>", 3), start, eos, first)
    choices = {
        "norm": "post",
        "embedding_norm": True,
        "positions": "learned",
        "position_offset": UNUSED_POSITIONS,
        "max_length": settings["max_position_embeddings"],
    }
    network = build_network(folder, settings, choices, order, order)
    if not with_tokenizers:
        return import_network(folder, network, order, order)
    names, symbols = build_names_and_symbols(vocabulary, order, first)
    tokenizer = ByteLevelBPE(merges, names, symbols)
    generation, notes = import_generation(folder, order, symbols)
    notes += missing_merge_notes(folder, merges, vocabulary)
    generation = exclude_prefix_from_limit(generation)
    if IMPORTED_BOS in symbols:
        generation["source_prefix"] = [IMPORTED_BOS]
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def missing_merge_notes(
    folder: HuggingFaceFolder, merges: Sequence[Merge], vocabulary: Mapping[str, int]
) -> list[MessagePart]:
    """Return a note on merged pieces missing in the vocabulary, which become unk. Raise an error if over 10% are."""
    merged = ["".join(merge) for merge in merges]
    unknown = [piece for piece in merged if piece not in vocabulary]
    counts = {"count": len(unknown), "total": len(merged), "examples": unknown[:3]}
    if len(unknown) > _MAX_MISSING_SHARE * len(merged):
        raise ModelError("merges_vocabulary_mismatch", path=folder.path, **counts)
    return [MessagePart("merged_pieces_unknown", **counts)] if unknown else []


def _read_bart_vocabulary(folder: HuggingFaceFolder) -> tuple[tuple[Merge, ...], dict[str, int]]:
    """Return the merges and the vocabulary ids, from merges.txt and vocab.json or from tokenizer.json."""
    if folder.json_field("tokenizer_config.json", "add_prefix_space").flag():
        raise ModelError("add_prefix_space_unsupported", path=folder.path / "tokenizer_config.json")
    if not (folder.path / "vocab.json").is_file() and has_tokenizer_model(folder):
        return read_bpe_json(folder)
    return read_merges(folder.require_file("merges.txt")), read_vocabulary(folder.require_file("vocab.json"))
