"""Readers of Marian and Pegasus folders of transformers.

Pegasus is Marian with pre-norm. attendo exports its pre-norm models as Pegasus with a MarianTokenizer. Other Pegasus
models have another tokenizer and are rejected, because the Marian tokenizer files are missing.
"""

from typing import Any

from attendo.errors import ModelError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.read_tokenizers import (
    build_names_and_symbols,
    missing_piece_notes,
    non_text_ids,
    read_sentencepiece_model,
    read_vocabulary,
    require_fit,
)
from attendo.interop.huggingface.read_weights import BART_DEFAULTS, build_network, read_settings
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, build_permutation
from attendo.text.imported_sentencepiece import ImportedSentencePiece

_MARIAN_DEFAULTS: dict[str, dict[str, Any]] = {
    "marian": {"activation_function": "gelu", "scale_embedding": False, "share_encoder_decoder_embeddings": True},
    "pegasus": BART_DEFAULTS,
}
_MARIAN_CHOICES = {"positions": "sinusoidal", "position_layout": "halves"}
_MARIAN_NORMS = {"marian": "post", "pegasus": "pre"}
_MARIAN_UNK_ID = 1  # default ids, if no file gives them
_MARIAN_EOS_IDS = {"marian": 0, "pegasus": 1}


def from_marian(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a model. Without tokenizers the folder needs only config.json and weights."""
    settings = read_settings(folder, _MARIAN_DEFAULTS[folder.model_type])
    vocabularies = _read_marian_vocabularies(folder, settings) if with_tokenizers else ({}, {})
    source, target = _marian_permutations(folder, settings, vocabularies)
    network = build_network(
        folder, settings, {**_MARIAN_CHOICES, "norm": _MARIAN_NORMS[folder.model_type]}, source, target
    )
    if not with_tokenizers:
        return import_network(folder, network, source, target)
    ours = _marian_tokenizers(folder, vocabularies, (source, target))
    generation, notes = import_generation(folder, target, ours[1].symbols)
    notes += [
        note
        for side, tokenizer, vocabulary in zip(("source", "target"), ours, vocabularies, strict=True)
        for note in missing_piece_notes(folder.path / f"{side}.spm", tokenizer.model, vocabulary)
    ]
    return ImportedModel(folder, network, source, target, *ours, exclude_prefix_from_limit(generation), tuple(notes))


def _read_marian_vocabularies(
    folder: HuggingFaceFolder, settings: dict[str, Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the vocabularies of source and target, which may be the same."""
    source = read_vocabulary(folder.require_file("vocab.json"))
    separate = (folder.path / "target_vocab.json").is_file()
    target = read_vocabulary(folder.require_file("target_vocab.json")) if separate else source
    for name, vocabulary, side in (("vocab.json", source, "source"), ("target_vocab.json", target, "target")):
        require_fit(folder.path / name, vocabulary, settings[f"{side}_vocab_size"])
    if separate and settings["share_encoder_decoder_embeddings"]:
        raise ModelError("shared_embedding_two_vocabularies", path=folder.path)
    return source, target


def _marian_permutations(
    folder: HuggingFaceFolder, settings: dict[str, Any], vocabularies: tuple[dict[str, int], dict[str, int]]
) -> tuple[VocabularyPermutation, VocabularyPermutation]:
    """Return the permutations of source and target. The decoder start token defaults to pad."""
    last = settings["vocab_size"] - 1
    eos = read_token_id(folder, "eos_token_id", _MARIAN_EOS_IDS[folder.model_type])
    pad = read_token_id(folder, "pad_token_id", last if folder.model_type == "marian" else 0)
    start = read_token_id(folder, "decoder_start_token_id", pad)
    suppressed = start in folder.generation_setting("suppress_tokens").tokens()
    suppressed = suppressed or [start] in folder.generation_setting("bad_words_ids").sequences()
    orders = []
    for vocabulary, side in zip(vocabularies, ("source", "target"), strict=True):
        size = settings[f"{side}_vocab_size"]
        orders.append(
            build_permutation(
                size,
                pad=vocabulary.get("<pad>", pad) if side == "source" else pad,
                unk=vocabulary.get("<unk>", None if vocabulary else _MARIAN_UNK_ID),
                start=min(start, size - 1) if side == "source" else start,
                eos=vocabulary.get("</s>", eos) if side == "source" else eos,
                first=_marian_special_ids(vocabulary),
                moves_start=suppressed,
            )
        )
    return orders[0], orders[1]


def _marian_tokenizers(
    folder: HuggingFaceFolder,
    vocabularies: tuple[dict[str, int], dict[str, int]],
    orders: tuple[VocabularyPermutation, VocabularyPermutation],
) -> tuple[ImportedSentencePiece, ImportedSentencePiece]:
    tokenizers = []
    for side, vocabulary, order in zip(("source", "target"), vocabularies, orders, strict=True):
        model = read_sentencepiece_model(folder.require_file(f"{side}.spm"), vocabulary)
        names, symbols = build_names_and_symbols(vocabulary, order, _marian_special_ids(vocabulary))
        tokenizers.append(ImportedSentencePiece(model, names, symbols))
    return tokenizers[0], tokenizers[1]


def _marian_special_ids(vocabulary: dict[str, int]) -> list[int]:
    """Return the ids of language tokens such as `>>fr<<`, which start multilingual sources, and of other non-text."""
    languages = sorted(each for piece, each in vocabulary.items() if piece.startswith(">>") and piece.endswith("<<"))
    return [*languages, *non_text_ids(vocabulary)]
