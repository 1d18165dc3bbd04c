"""Marian and OPUS-MT models, as transformers keeps them: post-norm, sines before cosines, a bias on the logits.

Pegasus is the same with the norms before the sub-layers, which is how our own models of that kind are exported: with a
MarianTokenizer. Others of its models have another tokenizer, and are refused for want of its files.
"""

from typing import Any

from attendo.errors import ModelError
from attendo.interop.bart_family import network_from, settings_of
from attendo.interop.foreign_generation import behind_prefix, generation_from
from attendo.interop.foreign_vocabulary import missing, named, pieces_of, read_vocabulary, require_fit, unspoken
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.interop.imported import Imported, token_id
from attendo.interop.rearranged import Rearranged, rearranged
from attendo.text.foreign_pieces import ForeignPieces

_DEFAULTS: dict[str, dict[str, Any]] = {
    "marian": {
        "activation_function": "gelu",
        "scale_embedding": False,
        "share_encoder_decoder_embeddings": True,
    },
    "pegasus": {"activation_function": "gelu", "scale_embedding": False, "vocab_size": 50265},
}
_CHOICES = {"positions": "sinusoidal", "position_layout": "halves"}
_NORMS = {"marian": "post", "pegasus": "pre"}
_UNK = 1  # ids of theirs where no file tells
_ENDS = {"marian": 0, "pegasus": 1}


def from_marian(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> Imported:
    """Without tokenizers the folder needs no more than config.json and weights."""
    settings = settings_of(folder, _DEFAULTS[folder.kind])
    vocabularies = _vocabularies(folder, settings) if with_tokenizers else ({}, {})
    source, target = _orders(folder, settings, vocabularies)
    network = network_from(folder, settings, {**_CHOICES, "norm": _NORMS[folder.kind]}, source, target)
    if not with_tokenizers:
        taken = generation_from(folder, target)
        return Imported(folder, network, source, target, generation=taken.settings, notes=taken.notes)
    ours = _tokenizers(folder, vocabularies, (source, target))
    taken = generation_from(folder, target, ours[1].symbols)
    notes = [
        note
        for side, tokenizer, vocabulary in zip(("source", "target"), ours, vocabularies, strict=True)
        for note in missing(folder.path / f"{side}.spm", tokenizer.model, vocabulary)
    ]
    return Imported(folder, network, source, target, *ours, behind_prefix(taken.settings), (*taken.notes, *notes))


def _vocabularies(folder: HuggingFaceFolder, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Of source and target: one and the same, or two."""
    source = read_vocabulary(folder.file("vocab.json"))
    separate = (folder.path / "target_vocab.json").is_file()
    target = read_vocabulary(folder.file("target_vocab.json")) if separate else source
    for name, vocabulary, side in (("vocab.json", source, "source"), ("target_vocab.json", target, "target")):
        require_fit(folder.path / name, vocabulary, settings[f"{side}_vocab_size"])
    if separate and settings["share_encoder_decoder_embeddings"]:
        raise ModelError("shared_embedding_two_vocabularies", path=folder.path)
    return source, target


def _orders(
    folder: HuggingFaceFolder, settings: dict[str, Any], vocabularies: tuple[dict[str, int], dict[str, int]]
) -> tuple[Rearranged, Rearranged]:
    """The decoder begins from pad, unless it was told otherwise; with one vocabulary both orders are the same."""
    last = settings["vocab_size"] - 1
    eos = token_id(folder, "eos_token_id", _ENDS[folder.kind])
    pad = token_id(folder, "pad_token_id", last if folder.kind == "marian" else 0)
    start = token_id(folder, "decoder_start_token_id", pad)
    silent = start in folder.answering("suppress_tokens").tokens()
    silent = silent or [start] in folder.answering("bad_words_ids").sequences()
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
) -> tuple[ForeignPieces, ForeignPieces]:
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
