"""The files of the tokenizers of transformers that put a language before a text.

sentencepiece.bpe.model  tokenizer_config.json     with vocab.json of an `M2M100Tokenizer`,
                                                   with tokenizer.json of an `NllbTokenizer` or `MBart50Tokenizer`
"""

import json
from pathlib import Path
from typing import Any

from attendo.interop.ctranslate2_folder import longest_of, write_json
from attendo.interop.fairseq_order import fairseq_names
from attendo.interop.foreign_tokenizer import compare_cuts, language_code
from attendo.interop.from_bart import BEGIN
from attendo.interop.from_m2m100 import LANGUAGES, PIECES
from attendo.interop.rearranged import Rearranged
from attendo.interop.sentences import prefixes_of, random_sources
from attendo.interop.tokenizer_json import FILE
from attendo.interop.transformers_loading import open_tokenizer
from attendo.text.foreign_pieces import ForeignPieces
from attendo.text_model import TextModel

_TEXTS = 100
_CONFIG, _MASK = "tokenizer_config.json", "<mask>"


def begins_sources(model: TextModel) -> bool:
    """Whether sources begin as they have them: with a language, which can still be told later."""
    return set(model.generation.source_prefix) <= {*_languages(model)} and len(model.generation.source_prefix) <= 1


def write_tokenizer(model: TextModel, folder: Path, order: Rearranged) -> list[str]:
    """Says why it stays behind, if it does."""
    tokenizer, name = model.source_tokenizer, _class_of(model)
    if not isinstance(tokenizer, ForeignPieces) or tokenizer is not model.target_tokenizer:
        return [f"the tokenizers stay behind: {name} is of foreign_pieces, this one is of {tokenizer.kind}"]
    ids = fairseq_names(tokenizer, order)
    (folder / PIECES).write_bytes(tokenizer.model)
    write_json(folder / _CONFIG, {"tokenizer_class": name, **_settings(model, name)})
    if name == "M2M100Tokenizer":
        write_json(folder / "vocab.json", {piece: row for piece, row in ids.items() if piece not in _languages(model)})
    else:
        _write_json_of(open_tokenizer(folder, _model_type(model)), folder, ids)
    if fault := _fault(model, folder, order, ids):
        for file in (PIECES, _CONFIG, "vocab.json", FILE):
            (folder / file).unlink(missing_ok=True)
        return [f"the tokenizers stay behind: by {name} {fault}"]
    return []


def _fault(model: TextModel, folder: Path, order: Rearranged, ids: dict[str, int]) -> str | None:
    """Its classes have ideas of their own on languages and on how pieces are made of a text."""
    theirs, tokenizer = open_tokenizer(folder, _model_type(model)), model.source_tokenizer
    if others := [piece for piece, row in ids.items() if theirs.convert_tokens_to_ids(piece) != row]:
        return f"{len(others)} of {len(ids)} tokens have another id, {others[0]!r} for example"
    before, _ = prefixes_of(model)
    texts = [tokenizer.decode(source) for source in random_sources(tokenizer.vocab_size, _TEXTS)]
    cuts = compare_cuts((folder, _model_type(model)), order, tokenizer, before or None, texts)
    return None if cuts.same else cuts.told


def _model_type(model: TextModel) -> str:
    return "mbart" if _class_of(model) == "MBart50Tokenizer" else "m2m_100"


def _class_of(model: TextModel) -> str:
    if model.network.config.positions == "learned":
        return "MBart50Tokenizer"
    return "M2M100Tokenizer" if any(each.startswith("__") for each in _languages(model)) else "NllbTokenizer"


def _languages(model: TextModel) -> list[str]:
    return [name for name in model.source_tokenizer.symbols if name not in (BEGIN, _MASK)]


def _settings(model: TextModel, name: str) -> dict[str, Any]:
    """The languages before sources and answers, where the model has them."""
    languages, generation = _languages(model), model.generation
    prefixes = {"src_lang": generation.source_prefix, "tgt_lang": generation.target_prefix}
    told: dict[str, Any] = {side: language_code(each[0]) for side, each in prefixes.items() if each}
    if name == "M2M100Tokenizer":
        first = language_code(languages[0])
        told["language_codes"] = next(
            (name for name, codes in LANGUAGES.items() if codes.split()[0] == first), "m2m100"
        )
    elif name == "NllbTokenizer":
        told["additional_special_tokens"] = languages
    return {**told, "model_max_length": longest_of(model)}


def _write_json_of(theirs: Any, folder: Path, ids: dict[str, int]) -> None:
    """What they make of the pieces, with the tokens that they add in the order that these have in the network; one that
    ours does not know comes last.
    """
    content, last = json.loads(theirs.backend_tokenizer.to_str()), max(ids.values()) + 1
    added = [{**token, "id": ids.get(token["content"], last)} for token in content["added_tokens"]]
    write_json(folder / FILE, {**content, "added_tokens": sorted(added, key=lambda token: token["id"])})
