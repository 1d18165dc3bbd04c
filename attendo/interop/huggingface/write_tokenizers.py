"""Writes the files of Marian, BART, Blenderbot, M2M100, NLLB and mBART tokenizers of transformers.

sentencepiece.bpe.model  tokenizer_config.json     with vocab.json of an `M2M100Tokenizer`,
                                                   with tokenizer.json of an `NllbTokenizer` or `MBart50Tokenizer`

An imported model gets its original ids back.
"""

import json
from pathlib import Path
from typing import Any

from attendo.errors import MessagePart
from attendo.interop.certify import model_symbols, random_sources
from attendo.interop.exported_files import model_max_length
from attendo.interop.huggingface.load_pretrained import open_tokenizer
from attendo.interop.huggingface.read_bart import IMPORTED_BOS
from attendo.interop.huggingface.read_m2m100 import LANGUAGE_CODES, SENTENCEPIECE_BPE_FILE
from attendo.interop.huggingface.read_tokenizers import TOKENIZER_JSON, compare_tokenizations, language_code
from attendo.interop.huggingface.vocabulary import (
    SUPPRESS_BIAS,
    VocabularyPermutation,
    name_to_id,
    sentencepiece_bytes,
    vocabulary_names,
)
from attendo.model.transformer import Transformer
from attendo.model_files import write_json
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK, Tokenizer
from attendo.text.byte_level_bpe import ByteLevelBPE
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text_model import TextModel

_NUM_COMPARED_TEXTS = 100
_CONFIG, _MASK = "tokenizer_config.json", "<mask>"
_FAIRSEQ_PAD_ID = 1


def has_bart_prefix(model: TextModel) -> bool:
    """Return True if sources start with BART's bos."""
    return isinstance(model.source_tokenizer, ByteLevelBPE) and model.generation.source_prefix == (IMPORTED_BOS,)


def write_bart_tokenizer(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Write the tokenizer, or return the reason why it cannot be written."""
    tokenizer = model.source_tokenizer
    if not isinstance(tokenizer, ByteLevelBPE) or tokenizer is not model.target_tokenizer:
        return _wrong_kind("BartTokenizer", "byte_pairs", "source", tokenizer)
    if not has_bart_prefix(model):
        return MessagePart("bart_source_prefix_missing", prefix=IMPORTED_BOS)
    _write_byte_pairs(model, tokenizer, folder, order, "BartTokenizer")
    return None


def write_blenderbot_tokenizer(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Write the tokenizer, or return the reason why it cannot be written.

    transformers 5 adds eos to a source only if tokenizer.json says so.
    """
    tokenizer = model.source_tokenizer
    if not isinstance(tokenizer, ByteLevelBPE) or tokenizer is not model.target_tokenizer:
        return _wrong_kind("BlenderbotTokenizer", "byte_pairs", "source", tokenizer)
    from tokenizers.processors import TemplateProcessing

    _write_byte_pairs(model, tokenizer, folder, order, "BlenderbotTokenizer")
    eos = (CONTROL_PIECES[EOS], order.rows[EOS])
    theirs = open_tokenizer(folder, "blenderbot").backend_tokenizer
    theirs.post_processor = TemplateProcessing(f"$A {eos[0]}", special_tokens=[eos])
    theirs.save(str(folder / TOKENIZER_JSON))
    return None


def _write_byte_pairs(
    model: TextModel, tokenizer: ByteLevelBPE, folder: Path, order: VocabularyPermutation, name: str
) -> None:
    write_json(folder / "vocab.json", fairseq_vocabulary(tokenizer, order))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in tokenizer.merges)]
    (folder / "merges.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")
    settings = {
        "tokenizer_class": name,
        "add_prefix_space": tokenizer.adds_space,
        "model_max_length": model_max_length(model),
    }
    write_json(folder / _CONFIG, settings)


def has_no_source_prefix(model: TextModel) -> bool:
    """Return True if sources have no prefix, as in Marian."""
    return not model.generation.source_prefix


def write_marian_tokenizer(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Write the tokenizers with attendo's ids, or return the reason why they are not written."""
    tokenizers = {"source": model.source_tokenizer, "target": model.target_tokenizer}
    names = {side: vocabulary_names(tokenizer) for side, tokenizer in tokenizers.items()}
    files = {side: sentencepiece_bytes(tokenizer) for side, tokenizer in tokenizers.items()}
    for side, file in files.items():
        if file is None:
            return _wrong_kind("MarianTokenizer", "sentencepiece", side, tokenizers[side])
    for side, file in files.items():
        (folder / f"{side}.spm").write_bytes(file or b"")
    separate = names["source"] != names["target"]
    write_json(folder / "vocab.json", name_to_id(names["source"]))
    if separate:
        write_json(folder / "target_vocab.json", name_to_id(names["target"]))
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "model_max_length": model_max_length(model),
    }
    write_json(folder / "tokenizer_config.json", settings)
    return None


def has_language_prefix(model: TextModel) -> bool:
    """Return True if sources start with a language symbol, or have no prefix yet."""
    return (
        set(model.generation.source_prefix) <= {*_language_symbols(model)} and len(model.generation.source_prefix) <= 1
    )


def write_multilingual_tokenizer(model: TextModel, folder: Path, order: VocabularyPermutation) -> MessagePart | None:
    """Write the tokenizer, or return the reason why it cannot be written."""
    tokenizer, name = model.source_tokenizer, _tokenizer_class(model)
    if not isinstance(tokenizer, ImportedSentencePiece) or tokenizer is not model.target_tokenizer:
        return _wrong_kind(name, "foreign_pieces", "source", tokenizer)
    ids = fairseq_vocabulary(tokenizer, order)
    (folder / SENTENCEPIECE_BPE_FILE).write_bytes(tokenizer.model)
    write_json(folder / _CONFIG, {"tokenizer_class": name, **_tokenizer_settings(model, name)})
    if name == "M2M100Tokenizer":
        write_json(
            folder / "vocab.json", {piece: row for piece, row in ids.items() if piece not in _language_symbols(model)}
        )
    else:
        _write_tokenizer_json(open_tokenizer(folder, _model_type(model)), folder, ids)
    fault = _find_fault(model, folder, order, ids)
    for file in (SENTENCEPIECE_BPE_FILE, _CONFIG, "vocab.json", TOKENIZER_JSON) if fault else ():
        (folder / file).unlink(missing_ok=True)
    return fault


def _wrong_kind(name: str, needed: str, side: str, tokenizer: Tokenizer) -> MessagePart:
    return MessagePart("tokenizer_kind_differs", name=name, needed=needed, side=side, kind=tokenizer.kind)


def _find_fault(
    model: TextModel, folder: Path, order: VocabularyPermutation, ids: dict[str, int]
) -> MessagePart | None:
    """Return a fault if the written tokenizer gives other ids; its classes treat languages and text differently."""
    theirs, tokenizer = open_tokenizer(folder, _model_type(model)), model.source_tokenizer
    if others := [piece for piece, row in ids.items() if theirs.convert_tokens_to_ids(piece) != row]:
        name = _tokenizer_class(model)
        return MessagePart("tokens_have_other_ids", name=name, count=len(others), total=len(ids), piece=others[0])
    symbols = model_symbols(model)
    texts = [tokenizer.decode(source) for source in random_sources(tokenizer.vocab_size, _NUM_COMPARED_TEXTS)]
    comparison = compare_tokenizations(
        (folder, _model_type(model)), order, tokenizer, symbols if symbols.before else None, texts
    )
    return None if comparison.agrees else comparison.summary


def _model_type(model: TextModel) -> str:
    return "mbart" if _tokenizer_class(model) == "MBart50Tokenizer" else "m2m_100"


def _tokenizer_class(model: TextModel) -> str:
    if model.network.config.positions == "learned":
        return "MBart50Tokenizer"
    return "M2M100Tokenizer" if any(each.startswith("__") for each in _language_symbols(model)) else "NllbTokenizer"


def _language_symbols(model: TextModel) -> list[str]:
    return [name for name in model.source_tokenizer.symbols if name not in (IMPORTED_BOS, _MASK)]


def _tokenizer_settings(model: TextModel, name: str) -> dict[str, Any]:
    """Return the tokenizer settings, with the languages of source and target if the model sets them."""
    languages, generation = _language_symbols(model), model.generation
    prefixes = {"src_lang": generation.source_prefix, "tgt_lang": generation.target_prefix}
    settings: dict[str, Any] = {side: language_code(each[0]) for side, each in prefixes.items() if each}
    if name == "M2M100Tokenizer":
        first = language_code(languages[0])
        settings["language_codes"] = next(
            (name for name, codes in LANGUAGE_CODES.items() if codes.split()[0] == first), "m2m100"
        )
    elif name == "NllbTokenizer":
        settings["additional_special_tokens"] = languages
    return {**settings, "model_max_length": model_max_length(model)}


def _write_tokenizer_json(tokenizer: Any, folder: Path, ids: dict[str, int]) -> None:
    """Write the tokenizer's tokenizer.json with added tokens in the order of their ids in the network.

    A token unknown to attendo comes last.
    """
    content, last = json.loads(tokenizer.backend_tokenizer.to_str()), max(ids.values()) + 1
    added_tokens = [{**token, "id": ids.get(token["content"], last)} for token in content["added_tokens"]]
    write_json(
        folder / TOKENIZER_JSON, {**content, "added_tokens": sorted(added_tokens, key=lambda token: token["id"])}
    )


def fairseq_permutation(model: TextModel) -> VocabularyPermutation:
    """Return the permutation to fairseq's ids. With sinusoids, pad must have the id position_offset - 1.

    Blenderbot, which has learned positions but no norm of the embedding, has pad first. attendo's bos is the decoder
    start token. If it is a copy of another token, it gets that token's row. Otherwise it becomes `<s>`, or the last row
    if the model has another `<s>`.
    """
    config, tokenizer, original = model.network.config, model.target_tokenizer, find_bos_original(model.network)
    own = [BOS] if original is None else []
    symbols = {name: EOS + 1 + index for index, name in enumerate(tokenizer.symbols)}
    begin = [symbols.pop(IMPORTED_BOS)] if IMPORTED_BOS in symbols else []
    num_named = tokenizer.vocab_size - _count_unnamed(vocabulary_names(tokenizer))
    pieces, rest = range(EOS + 1 + len(tokenizer.symbols), num_named), range(num_named, tokenizer.vocab_size)
    order = [*(begin or own), EOS, UNK, *pieces, *symbols.values(), *rest, *(own if begin else ())]
    learned_pad = _FAIRSEQ_PAD_ID if config.embedding_norm else 0
    order.insert(learned_pad if config.positions == "learned" else config.position_offset - 1, PAD)
    rows = {number: row for row, number in enumerate(order)}
    if original is not None:
        rows[BOS] = rows[original]
    return VocabularyPermutation(tuple(rows[number] for number in sorted(rows)), frozenset({BOS} - {*own}))


def fairseq_vocabulary(tokenizer: Tokenizer, order: VocabularyPermutation) -> dict[str, int]:
    """Return the ids of their tokens by name, without tokens that are named only by a number."""
    names = vocabulary_names(tokenizer)
    names_by_number = {
        number: names[number] for number in range(len(names) - _count_unnamed(names)) if number not in order.copies
    }
    if IMPORTED_BOS in names:
        names_by_number |= {names.index(IMPORTED_BOS): names_by_number.pop(BOS, names[BOS])}
    return {
        name: order.rows[number]
        for number, name in sorted(names_by_number.items(), key=lambda each: order.rows[each[0]])
    }


def find_bos_original(network: Transformer) -> int | None:
    """Return the token that bos is still an exact copy of, if any."""
    bias, table = network.output.bias, network.target.tokens.weight
    if bias is None or bias[BOS].item() > SUPPRESS_BIAS:
        return None
    same = (table == table[BOS]).all(1).nonzero().flatten().tolist()
    return next((each for each in sorted(same, key=lambda each: each == PAD) if each != BOS), None)


def _count_unnamed(names: list[str]) -> int:
    """Return how many of the last names are only row numbers, one less than attendo's ids: rows without a piece."""
    last = len(names) - 2
    return next((n for n, name in enumerate(reversed(names)) if name.strip("<>") != f"row {last - n}"), 0)
