"""Readers of Marian, Pegasus, BART, mBART, M2M100 and NLLB folders of transformers.

Pegasus is the same with the norms before the sub-layers, which is how our own models of that kind are exported: with a
MarianTokenizer. Others of its models have another tokenizer, and are refused for want of its files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attendo.errors import ModelError, UsageError, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import behind_prefix, generation_from
from attendo.interop.huggingface.imported import Imported, token_id
from attendo.interop.huggingface.read_tokenizers import (
    added_tokens,
    byte_pairs_from_json,
    has_pieces,
    missing,
    named,
    pieces_from_json,
    pieces_of,
    read_pieces,
    read_vocabulary,
    require_fit,
    special_tokens,
    unspoken,
)
from attendo.interop.huggingface.read_weights import network_from, settings_of
from attendo.interop.huggingface.vocabulary import Rearranged, rearranged
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text.byte_level_bpe import BytePairs, Merge, read_merges
from attendo.text.imported_sentencepiece import ForeignPieces

_MARIAN_DEFAULTS: dict[str, dict[str, Any]] = {
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
_MOST_LACKING = 0.1  # of the pieces
_BART_DEFAULTS: dict[str, Any] = {"vocab_size": 50265, "activation_function": "gelu", "scale_embedding": False}
BEGIN, UNUSED_POSITIONS = "<<s>>", 2  # how its own bos is called here; positions that no token ever has
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


def from_marian(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> Imported:
    """Without tokenizers the folder needs no more than config.json and weights."""
    settings = settings_of(folder, _MARIAN_DEFAULTS[folder.kind])
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


def from_bart(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> Imported:
    """Without tokenizers the folder needs no more than config.json and weights."""
    settings = settings_of(folder, _BART_DEFAULTS)
    pad, eos = token_id(folder, "pad_token_id", 1), token_id(folder, "eos_token_id", 2)
    start = token_id(folder, "decoder_start_token_id", eos)
    merges, vocabulary = _read_bart_vocabulary(folder) if with_tokenizers else ((), {})
    if with_tokenizers:
        require_fit(folder.path, vocabulary, settings["vocab_size"])
    first = unspoken(vocabulary)
    order = rearranged(settings["vocab_size"], pad, vocabulary.get("<unk>", 3), start, eos, first)
    choices = {
        "norm": "post",
        "embedding_norm": True,
        "positions": "learned",
        "position_offset": UNUSED_POSITIONS,
        "max_length": settings["max_position_embeddings"],
    }
    network = network_from(folder, settings, choices, order, order)
    if not with_tokenizers:
        taken = generation_from(folder, order)
        return Imported(folder, network, order, order, generation=taken.settings, notes=taken.notes)
    names, symbols = named(vocabulary, order, first)
    tokenizer = BytePairs(merges, names, symbols)
    taken = generation_from(folder, order, symbols)
    lacking = _lacking(folder, merges, vocabulary)
    generation = behind_prefix(taken.settings) | ({"source_prefix": [BEGIN]} if BEGIN in symbols else {})
    return Imported(folder, network, order, order, tokenizer, tokenizer, generation, (*taken.notes, *lacking))


def _lacking(folder: HuggingFaceFolder, merges: Sequence[Merge], vocabulary: Mapping[str, int]) -> list[str]:
    """What merges make and the vocabulary has no id for is read as unknown: a little is told, much is refused."""
    made = ["".join(merge) for merge in merges]
    unknown = [piece for piece in made if piece not in vocabulary]
    told = f"{len(unknown)} of {len(made)} pieces that its merges make are not in its vocabulary, such as {unknown[:3]}"
    if len(unknown) > _MOST_LACKING * len(made):
        raise ModelError("merges_vocabulary_mismatch", path=folder.path, reason=told)
    return [f"{told}, and are read as unknown"] if unknown else []


def _read_bart_vocabulary(folder: HuggingFaceFolder) -> tuple[tuple[Merge, ...], dict[str, int]]:
    """Merges, and the ids of the vocabulary, from two files or from one."""
    if folder.told("tokenizer_config.json", "add_prefix_space").flag():
        raise ModelError("add_prefix_space_unsupported", path=folder.path / "tokenizer_config.json")
    if not (folder.path / "vocab.json").is_file() and has_pieces(folder):
        return byte_pairs_from_json(folder)
    return read_merges(folder.file("merges.txt")), read_vocabulary(folder.file("vocab.json"))


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
        model, vocabulary = _read_fairseq_pieces(folder)
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


def _read_fairseq_pieces(folder: HuggingFaceFolder) -> tuple[bytes, dict[str, int]]:
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
