"""Reader of multilingual folders of transformers: M2M100, NLLB, SMaLL-100, mBART and PLBART."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from attendo.errors import MessagePart, UsageError, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.load_pretrained import require_tokenizer_class
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
_PLBART_DEFAULTS: dict[str, Any] = {
    **BART_DEFAULTS,
    "vocab_size": 50005,
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "attention_dropout": 0.1,
    "scale_embedding": True,
}
_LEARNED_NORMS = {"mbart": "pre", "plbart": "post"}
_DEFAULTS = {"mbart": BART_DEFAULTS, "m2m_100": _M2M100_DEFAULTS, "plbart": _PLBART_DEFAULTS}
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


_MBART25_CODES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
_MBART50_CODES = (
    f"{_MBART25_CODES} af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "
    "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_PLBART_CODES = {
    "base": "__java__ __python__ __en_XX__",
    "multi": "__java__ __python__ __en_XX__ __javascript__ __php__ __ruby__ __go__",
}
_MASK = "<mask>"


@dataclass(frozen=True)
class _LanguageTokens:
    """Where a family puts the tokens of the languages."""

    source: Literal["before", "after", "none"] = "before"  # the token of the source language and its text
    target: Literal["output", "start", "source"] = "output"  # first token, decoder start token, or before the source


def from_m2m100(
    folder: HuggingFaceFolder,
    with_tokenizers: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ImportedModel:
    """Read an M2M100, NLLB, SMaLL-100, mBART or PLBART model.

    Languages have the model's names, such as `en`, `eng_Latn` or `java`. The files of the model give the defaults.
    """
    settings = read_settings(folder, _DEFAULTS[folder.model_type])
    pad, eos = read_token_id(folder, "pad_token_id", 1), read_token_id(folder, "eos_token_id", 2)
    start = read_token_id(folder, "decoder_start_token_id", eos)
    model, vocabulary, languages = (
        _read_m2m100_vocabulary(folder, settings["vocab_size"]) if with_tokenizers else (b"", {}, {})
    )
    tokens, named = _LanguageTokens(), _Languages(None, None)
    if with_tokenizers:
        tokens = _place_languages(folder, languages)
        named = _choose_languages(folder, languages, tokens, source_language, target_language)
        if tokens.target == "start":
            if named.target is None:
                raise UsageError("target_language_needed", path=folder.path, known=_list_languages(languages))
            start = languages[named.target]
    first = sorted([*languages.values(), *non_text_ids(vocabulary)])  # an export relies on this order
    unk = vocabulary.get("<unk>", _FAIRSEQ_CONTROL_IDS["<unk>"])
    order = build_permutation(settings["vocab_size"], pad, unk, start, eos, first)
    network = build_network(folder, settings, _m2m100_choices(folder.model_type, settings, pad), order, order)
    if not with_tokenizers:
        return import_network(folder, network, order, order)
    names, symbols = build_names_and_symbols({**vocabulary, **languages}, order, first)
    tokenizer = ImportedSentencePiece(model, names, symbols)
    use_forced_bos = target_language is None and tokens.target == "output"
    generation, notes = import_generation(folder, order, symbols, use_forced_bos=use_forced_bos)
    generation = exclude_prefix_from_limit({**named.to_settings(tokens), **generation})
    notes += missing_piece_notes(folder.path / SENTENCEPIECE_BPE_FILE, model, vocabulary)
    if folder.model_type == "mbart" and tokens.target == "start":
        notes.append(MessagePart("mbart_text_is_normalised"))
    missing = _missing_languages(tokens, generation)
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes), missing)


@dataclass(frozen=True)
class _Languages:
    """The tokens of the chosen languages."""

    source: str | None
    target: str | None

    def to_settings(self, tokens: _LanguageTokens) -> dict[str, Any]:
        """Return the symbols of sources and outputs as settings of a `GenerationConfig`."""
        settings = {
            "source_prefix": {"before": self.source, "none": self.target}.get(tokens.source),
            "source_suffix": self.source if tokens.source == "after" else None,
            "target_prefix": self.target if tokens.target == "output" else None,
        }
        return {name: [language] for name, language in settings.items() if language is not None}


def _missing_languages(tokens: _LanguageTokens, generation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sides without a language. SMaLL-100 has no token of the source language."""
    has = {
        "source": tokens.source == "none" or "source_prefix" in generation or "source_suffix" in generation,
        "target": {
            "start": True,
            "output": "target_prefix" in generation,
            "source": "source_prefix" in generation,
        }[tokens.target],
    }
    return tuple(side for side, found in has.items() if not found)


def _m2m100_choices(model_type: str, settings: dict[str, Any], pad: int) -> dict[str, Any]:
    """Return the fixed options. mBART and PLBART have learned positions, the first two unused."""
    if model_type in _LEARNED_NORMS:
        learned = {"positions": "learned", "position_offset": 2, "max_length": settings["max_position_embeddings"]}
        return {"norm": _LEARNED_NORMS[model_type], "embedding_norm": True, **learned}
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
        names = read_additional_special_tokens(folder) or _default_codes(folder, size - len(vocabulary))
        following = {name: len(vocabulary) + n for n, name in enumerate(names) if name not in vocabulary}
        token_ids = {**following, **read_added_tokens(folder)}
        languages = {name: each for name, each in token_ids.items() if name not in (*_FAIRSEQ_CONTROL_IDS, _MASK)}
        vocabulary |= {name: each for name, each in token_ids.items() if name == _MASK}
        vocabulary = {name: each for name, each in vocabulary.items() if name not in languages}
    require_fit(folder.path, {**vocabulary, **languages}, size)
    return model, vocabulary, dict(sorted(languages.items(), key=lambda each: each[1]))


def _default_codes(folder: HuggingFaceFolder, count: int) -> list[str]:
    """Return the tokens after the pieces that no file names. `count` is the number of rows after the pieces."""
    if folder.model_type == "plbart":
        codes = folder.json_field("tokenizer_config.json", "language_codes").look_up(
            _PLBART_CODES, _PLBART_CODES["base"]
        )
        return [*codes.split(), *([_MASK] if codes == _PLBART_CODES["base"] else [])]
    if folder.model_type != "mbart":
        return []
    codes = _MBART50_CODES if count >= len(_MBART50_CODES.split()) else _MBART25_CODES
    return [*codes.split(), _MASK]


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


def _choose_languages(
    folder: HuggingFaceFolder,
    languages: Mapping[str, int],
    tokens: _LanguageTokens,
    source: str | None,
    target: str | None,
) -> _Languages:
    """Return the tokens of the languages: those given, else those in the files of the model."""
    if source is not None and tokens.source == "none":
        raise UsageError("source_language_unused", path=folder.path)
    defaults = {name: folder.json_field("tokenizer_config.json", name).text() for name in ("src_lang", "tgt_lang")}
    if target is None and tokens.target == "start":
        begin = folder.setting("decoder_start_token_id").token()
        target = next((name for name, token in languages.items() if token == begin), None)
    return _Languages(
        _find_language_token(languages, source or defaults["src_lang"]),
        _find_language_token(languages, target or defaults["tgt_lang"]),
    )


def _place_languages(folder: HuggingFaceFolder, languages: Mapping[str, int]) -> _LanguageTokens:
    """Return where the languages are. Of mBART, only mBART-50 puts them before the text."""
    name = require_tokenizer_class(folder.path, folder.model_type)
    if folder.model_type == "plbart":
        return _LanguageTokens("after", "start")
    if name == "SMALL100Tokenizer":
        return _LanguageTokens("none", "source")
    if folder.model_type == "mbart" and (name == "MBartTokenizer" or (not name and _MBART50_LANGUAGE not in languages)):
        return _LanguageTokens("after", "start")
    if folder.json_field("tokenizer_config.json", "legacy_behaviour").flag():
        return _LanguageTokens("after", "output")
    return _LanguageTokens()


def _find_language_token(languages: Mapping[str, int], name: str | None) -> str | None:
    if name is None:
        return None
    for each in (name, f"__{name}__"):
        if each in languages:
            return each
    raise UsageError("language_not_in_model", name=shorten(name), known=_list_languages(languages))


def _list_languages(languages: Mapping[str, int]) -> str:
    return list_names((each.strip("_") for each in languages), 20)
