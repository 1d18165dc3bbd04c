"""M2M100, NLLB and mBART as transformers keeps them: pre-norm, with a language before source and answer."""

from typing import Any

from attendo.errors import ModelError, UsageError, list_names, shorten
from attendo.interop.bart_family import network_from, settings_of
from attendo.interop.foreign_generation import behind_prefix, generation_from
from attendo.interop.foreign_vocabulary import (
    added_tokens,
    missing,
    named,
    pieces_of,
    read_pieces,
    read_vocabulary,
    require_fit,
    special_tokens,
    unspoken,
)
from attendo.interop.huggingface import HuggingFaceFolder
from attendo.interop.imported import Imported, token_id
from attendo.interop.rearranged import rearranged
from attendo.interop.tokenizer_json import has_pieces, pieces_from_json
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text.foreign_pieces import ForeignPieces

PIECES = "sentencepiece.bpe.model"

_OF_M2M100: dict[str, Any] = {
    "vocab_size": 128112,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "scale_embedding": True,
}
_OF_MBART: dict[str, Any] = {"vocab_size": 50265, "activation_function": "gelu", "scale_embedding": False}
_ONLY_OF_50 = "sl_SI"  # a language that the first mBART did not have
_FAIRSEQ = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}  # before all pieces, unless a vocabulary says otherwise
# Their ids follow the vocabulary in this order, and no file of the model tells it.
LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


def from_m2m100(
    folder: HuggingFaceFolder,
    with_tokenizers: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Imported:
    """Languages by the model's own names, such as `en` or `eng_Latn`; unless given, those that its files name."""
    settings = settings_of(folder, _OF_MBART if folder.kind == "mbart" else _OF_M2M100)
    pad, eos = token_id(folder, "pad_token_id", 1), token_id(folder, "eos_token_id", 2)
    start = token_id(folder, "decoder_start_token_id", eos)
    model, vocabulary, languages = _vocabulary(folder, settings["vocab_size"]) if with_tokenizers else (b"", {}, {})
    first = sorted([*languages.values(), *unspoken(vocabulary)])  # by which an export knows their ids
    unk = vocabulary.get("<unk>", _FAIRSEQ["<unk>"])
    order = rearranged(settings["vocab_size"], pad, unk, start, eos, first)
    network = network_from(folder, settings, _choices(folder.kind, settings, pad), order, order)
    if not with_tokenizers:
        taken = generation_from(folder, order)
        return Imported(folder, network, order, order, generation=taken.settings, notes=taken.notes)
    names, symbols = named({**vocabulary, **languages}, order, first)
    tokenizer = ForeignPieces(model, names, symbols)
    taken = generation_from(folder, order, symbols, begins=target_language is None)
    prefixes = _prefixes(folder, languages, source_language, target_language)
    generation = behind_prefix({**prefixes, **taken.settings})
    notes = (*taken.notes, *missing(folder.path / PIECES, model, vocabulary))
    return Imported(folder, network, order, order, tokenizer, tokenizer, generation, notes)


def _choices(kind: str, settings: dict[str, Any], pad: int) -> dict[str, Any]:
    """mBART learns its positions, of which the first two are never used; the others compute them."""
    if kind == "mbart":
        learned = {"positions": "learned", "position_offset": 2, "max_length": settings["max_position_embeddings"]}
        return {"norm": "pre", "embedding_norm": True, **learned}
    return {"norm": "pre", "positions": "sinusoidal", "position_layout": "fairseq", "position_offset": pad + 1}


def _vocabulary(folder: HuggingFaceFolder, size: int) -> tuple[bytes, dict[str, int], dict[str, int]]:
    """The SentencePiece model, and pieces and languages with their ids."""
    if (folder.path / "vocab.json").is_file():
        vocabulary = read_vocabulary(folder.file("vocab.json"))
        model, languages = pieces_of(folder.file(PIECES), vocabulary), _languages_behind(folder, len(vocabulary), size)
    else:
        model, vocabulary = _pieces(folder)
        told = special_tokens(folder)
        following = {name: len(vocabulary) + n for n, name in enumerate(told) if name not in vocabulary}
        added = {**following, **added_tokens(folder)}
        languages = {name: each for name, each in added.items() if name not in (*_FAIRSEQ, "<mask>")}
        vocabulary |= {name: each for name, each in added.items() if name == "<mask>"}
        vocabulary = {name: each for name, each in vocabulary.items() if name not in languages}
    require_fit(folder.path, {**vocabulary, **languages}, size)
    return model, vocabulary, dict(sorted(languages.items(), key=lambda each: each[1]))


def _languages_behind(folder: HuggingFaceFolder, count: int, size: int) -> dict[str, int]:
    """Those of M2M100, behind so many pieces."""
    codes = folder.told("tokenizer_config.json", "language_codes").one_of(LANGUAGES, LANGUAGES["m2m100"]).split()
    following = {f"__{code}__": count + n for n, code in enumerate(codes)}
    languages = {name: each for name, each in {**following, **added_tokens(folder)}.items() if each < size}
    return {name: each for name, each in languages.items() if name.startswith("__")}


def _pieces(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
    """Without a vocab.json the ids are those of SentencePiece, one further, or those of tokenizer.json."""
    if not (folder.path / PIECES).is_file() and has_pieces(folder):
        return pieces_from_json(folder)
    path = folder.file(PIECES)
    normal = [piece.text for piece in read_pieces(path, read_bytes(path, COPY_AGAIN))][3:]
    vocabulary = {**_FAIRSEQ, **{piece: n for n, piece in enumerate(normal, start=len(_FAIRSEQ))}}
    return pieces_of(folder.file(PIECES), vocabulary), vocabulary


def _prefixes(
    folder: HuggingFaceFolder, languages: dict[str, int], source: str | None, target: str | None
) -> dict[str, Any]:
    told = {name: folder.told("tokenizer_config.json", name).text() for name in ("src_lang", "tgt_lang")}
    if reason := _language_behind(folder, languages):
        raise ModelError("language_after_source_unsupported", path=folder.path, reason=reason)
    chosen = {
        "source_prefix": _language(languages, source or told["src_lang"]),
        "target_prefix": _language(languages, target or told["tgt_lang"]),
    }
    return {name: [language] for name, language in chosen.items() if language is not None}


def _language_behind(folder: HuggingFaceFolder, languages: dict[str, int]) -> str | None:
    """Why its sources end with their language, if they do. Of mBART only that of 50 languages has it before them."""
    if folder.told("tokenizer_config.json", "legacy_behaviour").flag():
        return "legacy_behaviour"
    if folder.kind != "mbart":
        return None
    name = folder.told("tokenizer_config.json", "tokenizer_class").text() or folder.setting("tokenizer_class").text()
    if name is None:
        return None if _ONLY_OF_50 in languages else "mBART-cc25"
    return None if name.startswith("MBart50") else name


def _language(languages: dict[str, int], name: str | None) -> str | None:
    if name is None:
        return None
    for each in (name, f"__{name}__"):
        if each in languages:
            return each
    raise UsageError(
        "language_not_in_model", name=shorten(name), known=list_names((each.strip("_") for each in languages), 20)
    )
