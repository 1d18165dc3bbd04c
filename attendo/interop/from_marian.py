"""Marian and OPUS-MT models, as transformers keeps them: post-norm, sines before cosines, a bias on the logits."""

from typing import Any

from attendo.errors import ModelError
from attendo.interop.bart_family import network_from, settings_of
from attendo.interop.foreign_vocabulary import named, pieces_of, read_vocabulary, require_fit, unspoken
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.interop.imported import Imported, generation_from, token_id
from attendo.interop.rearranged import Rearranged, rearranged
from attendo.text import Tokenizer
from attendo.text.foreign_pieces import ForeignPieces

DEFAULTS: dict[str, Any] = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
}
_CHOICES = {"norm": "post", "positions": "sinusoidal", "position_layout": "halves"}
_UNK, _END = 1, 0  # ids of theirs where no file tells


def from_marian(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> Imported:
    """Without tokenizers the folder needs no more than config.json and weights."""
    settings = settings_of(folder, DEFAULTS)
    vocabularies = _vocabularies(folder, settings) if with_tokenizers else ({}, {})
    source, target = _orders(folder, settings, vocabularies)
    network = network_from(folder, settings, _CHOICES, source, target)
    generation = generation_from(folder)
    if not with_tokenizers:
        return Imported(folder, network, source, target, generation=generation)
    ours = _tokenizers(folder, vocabularies, (source, target))
    return Imported(folder, network, source, target, ours[0], ours[1], generation)


def _vocabularies(folder: HuggingFaceFolder, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Of source and target: one and the same, or two."""
    source = read_vocabulary(folder.file("vocab.json"))
    separate = (folder.path / "target_vocab.json").is_file()
    target = read_vocabulary(folder.file("target_vocab.json")) if separate else source
    for name, vocabulary, side in (("vocab.json", source, "source"), ("target_vocab.json", target, "target")):
        require_fit(folder.path / name, vocabulary, settings[f"{side}_vocab_size"])
    if separate and settings["share_encoder_decoder_embeddings"]:
        raise ModelError(
            f"{folder.path} has two vocabularies, but one table for both (share_encoder_decoder_embeddings)"
        )
    return source, target


def _orders(
    folder: HuggingFaceFolder, settings: dict[str, Any], vocabularies: tuple[dict[str, int], dict[str, int]]
) -> tuple[Rearranged, Rearranged]:
    """The decoder begins from pad, unless it was told otherwise; with one vocabulary both orders are the same."""
    eos, pad = token_id(folder, "eos_token_id", _END), token_id(folder, "pad_token_id", settings["vocab_size"] - 1)
    start = token_id(folder, "decoder_start_token_id", pad)
    silent = start in (folder.setting("suppress_tokens") or ()) or [start] in (folder.setting("bad_words_ids") or ())
    orders = []
    for vocabulary, side in zip(vocabularies, ("source", "target"), strict=True):
        size = settings[f"{side}_vocab_size"]
        orders.append(
            rearranged(
                size,
                pad=vocabulary.get("<pad>", pad) if side == "source" else pad,
                unk=vocabulary.get("<unk>", None if vocabulary else _UNK),
                start=min(start, size - 1) if side == "source" else start,
                eos=vocabulary.get("</s>", eos) if side == "source" else eos,
                first=_specials(vocabulary),
                moves_start=silent,
            )
        )
    return orders[0], orders[1]


def _tokenizers(
    folder: HuggingFaceFolder,
    vocabularies: tuple[dict[str, int], dict[str, int]],
    orders: tuple[Rearranged, Rearranged],
) -> tuple[Tokenizer, Tokenizer]:
    made = []
    for side, vocabulary, order in zip(("source", "target"), vocabularies, orders, strict=True):
        model = pieces_of(folder.file(f"{side}.spm"), vocabulary)
        names, symbols = named(vocabulary, order, _specials(vocabulary))
        made.append(ForeignPieces(model, names, symbols))
    return made[0], made[1]


def _specials(vocabulary: dict[str, int]) -> list[int]:
    """The ids of `>>fr<<` and its like, which a model of several languages wants before the source."""
    languages = sorted(each for piece, each in vocabulary.items() if piece.startswith(">>") and piece.endswith("<<"))
    return [*languages, *unspoken(vocabulary)]
