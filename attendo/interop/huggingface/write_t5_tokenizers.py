"""Writes the tokenizer files of T5 folders, and gives the tokens the ids that these files have.

spiece.model  tokenizer_config.json     of a `T5Tokenizer`
tokenizer_config.json                   of a `ByT5Tokenizer`
vocab.json  merges.txt  …               of a `RobertaTokenizer`, as CodeT5 has it

An imported model gets its original ids back, unless its tokens were in tokenizer.json alone and in another order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attendo.errors import MessagePart
from attendo.interop.certify import model_symbols, random_sources
from attendo.interop.exported_files import model_max_length
from attendo.interop.huggingface.load_pretrained import open_tokenizer
from attendo.interop.huggingface.read_bart import IMPORTED_BOS
from attendo.interop.huggingface.read_tokenizers import TOKENIZER_JSON, compare_tokenizations
from attendo.interop.huggingface.t5_classes import bos_is_suppressed
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, vocabulary_names
from attendo.interop.huggingface.write_tokenizers import find_bos_original
from attendo.model_files import write_json
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK, Bytes, Tokenizer
from attendo.text.byte_level_bpe import ByteLevelBPE
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import PieceType, iter_pieces, open_processor
from attendo.text_model import TextModel

_NUM_COMPARED_TEXTS = 100
_FIRST = (IMPORTED_BOS, "<mask>")  # they precede the pieces of CodeT5
_FILES = (
    *("spiece.model", "vocab.json", "merges.txt"),
    *("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json", TOKENIZER_JSON),
)


def t5_permutation(model: TextModel) -> VocabularyPermutation:
    """Return the permutation to the ids of the tokenizer files.

    attendo's bos is the decoder start token. After an import it is a copy of another token, mostly pad, and shares its
    row. If training has changed it, it takes the input row of pad, which no other input reads. Otherwise it is the last
    row.
    """
    tokenizer, original = model.target_tokenizer, find_bos_original(model.network)
    order = _order_ids(tokenizer)
    rest = sorted({*range(tokenizer.vocab_size)} - {*order, BOS})
    rows = {number: row for row, number in enumerate([*order, *rest])}
    if original is None and not bos_is_suppressed(model.network):
        rows.setdefault(BOS, len(rows))
        return VocabularyPermutation(tuple(rows[number] for number in sorted(rows)))
    rows[BOS] = rows[PAD if original is None else original]
    return VocabularyPermutation(tuple(rows[number] for number in sorted(rows)), frozenset({BOS}))


def _order_ids(tokenizer: Tokenizer) -> list[int]:
    """Return attendo's ids in the order of the tokenizer files, without bos and without rows that have no piece."""
    symbols = range(EOS + 1, EOS + 1 + len(tokenizer.symbols))
    match tokenizer:
        case Bytes():
            return [PAD, EOS, UNK, *range(symbols.stop, tokenizer.vocab_size), *symbols]
        case ByteLevelBPE():
            numbers = dict(zip(tokenizer.symbols, symbols, strict=True))
            first, mask = ([numbers[name]] if name in numbers else [] for name in _FIRST)
            pieces = [number for number, name in _list_entries(tokenizer) if number not in symbols and " " not in name]
            return [PAD, *first, EOS, UNK, *mask, *pieces, *(each for each in symbols if each not in (*first, *mask))]
        case ImportedSentencePiece():
            return [*_order_pieces(tokenizer), *symbols]
        case _:
            return [PAD, UNK, EOS]


def _list_entries(tokenizer: ByteLevelBPE | ImportedSentencePiece) -> Iterator[tuple[int, str]]:
    return enumerate(tokenizer.entries, start=len(CONTROL_PIECES))


def _order_pieces(tokenizer: ImportedSentencePiece) -> list[int]:
    """Return attendo's ids of the pieces of the SentencePiece model. Its control pieces have other names in attendo."""
    processor = open_processor(tokenizer.model)
    controls = {processor.unk_id(): UNK, processor.eos_id(): EOS, processor.pad_id(): PAD}
    if processor.pad_id() < 0:  # MADLAD pads with `<s>`
        controls[processor.bos_id()] = PAD
    ids = {name: number for number, name in _list_entries(tokenizer)}
    found = [controls.get(row, ids.get(piece.text)) for row, piece in enumerate(iter_pieces(tokenizer.model))]
    return [each for each in found if each is not None]


def write_t5_tokenizer(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Write the tokenizer, or return the reason why it cannot be written."""
    tokenizer = model.source_tokenizer
    if tokenizer is not model.target_tokenizer:
        return MessagePart("tokenizers_not_joint")
    write = {"bytes": _write_bytes, "byte_pairs": _write_byte_pairs, "foreign_pieces": _write_sentencepiece}
    if tokenizer.kind not in write:
        return MessagePart(
            "tokenizer_kind_differs", name="T5Tokenizer", needed="foreign_pieces", side="source", kind=tokenizer.kind
        )
    settings = write[tokenizer.kind](tokenizer, folder, order)
    write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": model_max_length(model)})
    if tokenizer.kind == "foreign_pieces" and model.network.config.relative_bias == "per_layer":
        # transformers 5 opens the tokenizer of a umT5 folder only with this file.
        open_tokenizer(folder, "t5").backend_tokenizer.save(str(folder / TOKENIZER_JSON))
    fault = _find_fault(model, folder, order)
    for file in _FILES if fault else ():
        (folder / file).unlink(missing_ok=True)
    return fault


def _write_bytes(tokenizer: Any, folder: Path, order: VocabularyPermutation) -> dict[str, Any]:
    return {"tokenizer_class": "ByT5Tokenizer", "extra_ids": len(tokenizer.symbols)}


def _write_byte_pairs(tokenizer: Any, folder: Path, order: VocabularyPermutation) -> dict[str, Any]:
    names = vocabulary_names(tokenizer)
    controls = {"<pad>": order.rows[PAD], "</s>": order.rows[EOS], "<unk>": order.rows[UNK]}
    pieces = {name: order.rows[number] for number, name in enumerate(names) if number > EOS and " " not in name}
    if IMPORTED_BOS in pieces:
        controls["<s>"] = pieces.pop(IMPORTED_BOS)
    ids = dict(sorted({**controls, **pieces}.items(), key=lambda each: each[1]))
    special = [name for name in tokenizer.symbols if name not in _FIRST]
    write_json(folder / "vocab.json", {name: row for name, row in ids.items() if name not in special})
    write_json(folder / "added_tokens.json", {name: ids[name] for name in special})
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": special})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in tokenizer.merges)]
    (folder / "merges.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
    return {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": tokenizer.adds_space}


def _write_sentencepiece(tokenizer: Any, folder: Path, order: VocabularyPermutation) -> dict[str, Any]:
    (folder / "spiece.model").write_bytes(tokenizer.model)
    pieces = list(iter_pieces(tokenizer.model))
    controls = {"unk_token": order.rows[UNK], "eos_token": order.rows[EOS], "pad_token": order.rows[PAD]}
    names = {name: pieces[row].text for name, row in controls.items() if row < len(pieces)}
    listed = {
        str(order.rows[number]): {"content": name, "special": True}
        for number, name in enumerate(tokenizer.symbols, start=EOS + 1)
        if pieces[min(order.rows[number], len(pieces) - 1)].type != PieceType.CONTROL
    }
    sentinels = sum(each["content"].startswith("<extra_id_") for each in listed.values())
    return {"tokenizer_class": "T5Tokenizer", "extra_ids": sentinels, **names, "added_tokens_decoder": listed}


def _find_fault(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Return a fault if transformers reads other ids from the files, apart from byte fallback."""
    tokenizer, symbols = model.source_tokenizer, model_symbols(model)
    theirs = open_tokenizer(folder, "t5")
    special = {name: order.rows[number] for number, name in enumerate(tokenizer.symbols, start=EOS + 1)}
    special.pop(IMPORTED_BOS, None)
    if others := [name for name, row in special.items() if theirs.convert_tokens_to_ids(name) != row]:
        name = type(theirs).__name__
        return MessagePart("tokens_have_other_ids", name=name, count=len(others), total=len(special), piece=others[0])
    texts = [tokenizer.decode(source) for source in random_sources(tokenizer.vocab_size, _NUM_COMPARED_TEXTS)]
    comparison = compare_tokenizations((folder, "t5"), order, tokenizer, symbols, texts)
    return None if comparison.agrees else comparison.summary
