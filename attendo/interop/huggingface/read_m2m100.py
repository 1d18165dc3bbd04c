"""Reader of mBART, M2M100 and NLLB folders of transformers."""

from typing import Any

from attendo.errors import ModelError, UsageError, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.read_tokenizers import (
    build_names_and_symbols,
    has_tokenizer_model,
    missing_piece_notes,
    non_text_ids,
    read_added_tokens,
    read_additional_special_tokens,
    read_pieces,
    read_sentencepiece_json,
    read_sentencepiece_model,
    read_vocabulary,
    require_fit,
)
from attendo.interop.huggingface.read_weights import BART_DEFAULTS, build_network, read_settings
from attendo.interop.huggingface.vocabulary import build_permutation
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text.imported_sentencepiece import ImportedSentencePiece

SENTENCEPIECE_BPE_FILE = "sentencepiece.bpe.model"
_M2M100_DEFAULTS: dict[str, Any] = {
    "vocab_size": 128112,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "scale_embedding": True,
}
_MBART50_LANGUAGE = "sl_SI"  # a language that mBART-cc25 lacks
_FAIRSEQ_CONTROL_IDS = {
    "<s>": 0,
    "<pad>": 1,
    "</s>": 2,
    "<unk>": 3,
}  # first ids, unless a vocabulary file gives others
# Language ids follow the vocabulary in this order, which no file of the model contains.
LANGUAGE_CODES = {
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
) -> ImportedModel:
    """Read a model. Languages have the model's names, such as `en` or `eng_Latn`; its files give the defaults."""
    settings = read_settings(folder, BART_DEFAULTS if folder.model_type == "mbart" else _M2M100_DEFAULTS)
    pad, eos = read_token_id(folder, "pad_token_id", 1), read_token_id(folder, "eos_token_id", 2)
    start = read_token_id(folder, "decoder_start_token_id", eos)
    model, vocabulary, languages = (
        _read_m2m100_vocabulary(folder, settings["vocab_size"]) if with_tokenizers else (b"", {}, {})
    )
    first = sorted([*languages.values(), *non_text_ids(vocabulary)])  # an export relies on this order
    unk = vocabulary.get("<unk>", _FAIRSEQ_CONTROL_IDS["<unk>"])
    order = build_permutation(settings["vocab_size"], pad, unk, start, eos, first)
    network = build_network(folder, settings, _m2m100_choices(folder.model_type, settings, pad), order, order)
    if not with_tokenizers:
        return import_network(folder, network, order, order)
    names, symbols = build_names_and_symbols({**vocabulary, **languages}, order, first)
    tokenizer = ImportedSentencePiece(model, names, symbols)
    generation, notes = import_generation(folder, order, symbols, use_forced_bos=target_language is None)
    prefixes = _language_prefixes(folder, languages, source_language, target_language)
    generation = exclude_prefix_from_limit({**prefixes, **generation})
    notes += missing_piece_notes(folder.path / SENTENCEPIECE_BPE_FILE, model, vocabulary)
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def _m2m100_choices(model_type: str, settings: dict[str, Any], pad: int) -> dict[str, Any]:
    """Return the fixed options. mBART has learned positions, the first two unused; the others have sinusoids."""
    if model_type == "mbart":
        learned = {"positions": "learned", "position_offset": 2, "max_length": settings["max_position_embeddings"]}
        return {"norm": "pre", "embedding_norm": True, **learned}
    return {"norm": "pre", "positions": "sinusoidal", "position_layout": "fairseq", "position_offset": pad + 1}


def _read_m2m100_vocabulary(folder: HuggingFaceFolder, size: int) -> tuple[bytes, dict[str, int], dict[str, int]]:
    """Return the SentencePiece model, and the ids of pieces and of languages."""
    if (folder.path / "vocab.json").is_file():
        vocabulary = read_vocabulary(folder.require_file("vocab.json"))
        model, languages = (
            read_sentencepiece_model(folder.require_file(SENTENCEPIECE_BPE_FILE), vocabulary),
            _m2m100_language_ids(folder, len(vocabulary), size),
        )
    else:
        model, vocabulary = _read_fairseq_pieces(folder)
        names = read_additional_special_tokens(folder)
        following = {name: len(vocabulary) + n for n, name in enumerate(names) if name not in vocabulary}
        token_ids = {**following, **read_added_tokens(folder)}
        languages = {name: each for name, each in token_ids.items() if name not in (*_FAIRSEQ_CONTROL_IDS, "<mask>")}
        vocabulary |= {name: each for name, each in token_ids.items() if name == "<mask>"}
        vocabulary = {name: each for name, each in vocabulary.items() if name not in languages}
    require_fit(folder.path, {**vocabulary, **languages}, size)
    return model, vocabulary, dict(sorted(languages.items(), key=lambda each: each[1]))


def _m2m100_language_ids(folder: HuggingFaceFolder, count: int, size: int) -> dict[str, int]:
    """Return M2M100's language ids, which follow the `count` pieces."""
    codes = (
        folder.json_field("tokenizer_config.json", "language_codes")
        .look_up(LANGUAGE_CODES, LANGUAGE_CODES["m2m100"])
        .split()
    )
    following = {f"__{code}__": count + n for n, code in enumerate(codes)}
    languages = {name: each for name, each in {**following, **read_added_tokens(folder)}.items() if each < size}
    return {name: each for name, each in languages.items() if name.startswith("__")}


def _read_fairseq_pieces(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
    """Return model and ids without vocab.json: SentencePiece ids shifted by one, or the ids of tokenizer.json."""
    if not (folder.path / SENTENCEPIECE_BPE_FILE).is_file() and has_tokenizer_model(folder):
        return read_sentencepiece_json(folder)
    path = folder.require_file(SENTENCEPIECE_BPE_FILE)
    normal = [piece.text for piece in read_pieces(path, read_bytes(path, COPY_AGAIN))][3:]
    vocabulary = {
        **_FAIRSEQ_CONTROL_IDS,
        **{piece: n for n, piece in enumerate(normal, start=len(_FAIRSEQ_CONTROL_IDS))},
    }
    return read_sentencepiece_model(folder.require_file(SENTENCEPIECE_BPE_FILE), vocabulary), vocabulary


def _language_prefixes(
    folder: HuggingFaceFolder, languages: dict[str, int], source: str | None, target: str | None
) -> dict[str, Any]:
    defaults = {name: folder.json_field("tokenizer_config.json", name).text() for name in ("src_lang", "tgt_lang")}
    if reason := _language_suffix_reason(folder, languages):
        raise ModelError("language_after_source_unsupported", path=folder.path, reason=reason)
    prefixes = {
        "source_prefix": _find_language_token(languages, source or defaults["src_lang"]),
        "target_prefix": _find_language_token(languages, target or defaults["tgt_lang"]),
    }
    return {name: [language] for name, language in prefixes.items() if language is not None}


def _language_suffix_reason(folder: HuggingFaceFolder, languages: dict[str, int]) -> str | None:
    """Return the reason if the language follows the source. Of mBART, only mBART-50 puts it first."""
    if folder.json_field("tokenizer_config.json", "legacy_behaviour").flag():
        return "legacy_behaviour"
    if folder.model_type != "mbart":
        return None
    name = (
        folder.json_field("tokenizer_config.json", "tokenizer_class").text() or folder.setting("tokenizer_class").text()
    )
    if name is None:
        return None if _MBART50_LANGUAGE in languages else "mBART-cc25"
    return None if name.startswith("MBart50") else name


def _find_language_token(languages: dict[str, int], name: str | None) -> str | None:
    if name is None:
        return None
    for each in (name, f"__{name}__"):
        if each in languages:
            return each
    raise UsageError(
        "language_not_in_model", name=shorten(name), known=list_names((each.strip("_") for each in languages), 20)
    )
