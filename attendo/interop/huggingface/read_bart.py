"""Reader of BART, MVP and Blenderbot folders of transformers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from attendo.errors import MessagePart, ModelError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.load_pretrained import require_tokenizer_class
from attendo.interop.huggingface.read_tokenizers import (
    TOKENIZER_JSON,
    build_names_and_symbols,
    has_tokenizer_model,
    non_text_ids,
    read_bpe_json,
    read_vocabulary,
    require_fit,
)
from attendo.interop.huggingface.read_weights import BART_DEFAULTS, build_network, read_settings
from attendo.interop.huggingface.vocabulary import build_permutation
from attendo.text.byte_level_bpe import ByteLevelBPE, Merge, read_merges

_MAX_MISSING_SHARE = 0.1  # of the merged pieces
IMPORTED_BOS, UNUSED_POSITIONS = "<<s>>", 2  # name of BART's own bos in attendo; unused first positions
_BART_CHOICES = {"norm": "post", "embedding_norm": True, "position_offset": UNUSED_POSITIONS}
_BLENDERBOT_DEFAULTS: dict[str, Any] = {
    **BART_DEFAULTS,
    "vocab_size": 8008,
    "d_model": 2560,
    "encoder_layers": 2,
    "decoder_layers": 24,
    "encoder_attention_heads": 32,
    "decoder_attention_heads": 32,
    "encoder_ffn_dim": 10240,
    "decoder_ffn_dim": 10240,
    "max_position_embeddings": 128,
}


class _Variant(NamedTuple):
    """What one model type has, besides the settings of config.json."""

    choices: dict[str, Any] = _BART_CHOICES
    defaults: dict[str, Any] = BART_DEFAULTS
    pad: int = 1
    start: int | None = None  # None: eos
    has_bos: bool = True  # sources begin with `<s>`
    adds_space: bool = False  # unless a file of the tokenizer says otherwise


_VARIANTS = {
    "bart": _Variant(),
    "mvp": _Variant(defaults={**BART_DEFAULTS, "vocab_size": 50267}),
    "blenderbot": _Variant(
        {"norm": "pre", "embedding_norm": False},
        _BLENDERBOT_DEFAULTS,
        pad=0,
        start=1,
        has_bos=False,
        adds_space=True,
    ),
}


def from_bart(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a BART, MVP or Blenderbot model. Without tokenizers the folder needs only config.json and weights."""
    variant = _VARIANTS[folder.model_type]
    if folder.setting("use_prompt").flag():
        raise ModelError("mvp_prompt_unsupported", path=folder.path)
    settings = read_settings(folder, variant.defaults)
    pad, eos = read_token_id(folder, "pad_token_id", variant.pad), read_token_id(folder, "eos_token_id", 2)
    start = read_token_id(folder, "decoder_start_token_id", eos if variant.start is None else variant.start)
    merges, vocabulary = _read_vocabulary(folder) if with_tokenizers else ((), {})
    if with_tokenizers:
        require_fit(folder.path, vocabulary, settings["vocab_size"])
    first = non_text_ids(vocabulary)
    order = build_permutation(settings["vocab_size"], pad, vocabulary.get("<unk>", 3), start, eos, first)
    learned = {"positions": "learned", "max_length": settings["max_position_embeddings"]}
    network = build_network(folder, settings, {"position_offset": 0, **variant.choices, **learned}, order, order)
    if not with_tokenizers:
        return import_network(folder, network, order, order)
    names, symbols = build_names_and_symbols(vocabulary, order, first)
    tokenizer = ByteLevelBPE(merges, names, symbols, adds_space(folder, variant.adds_space))
    generation, notes = import_generation(folder, order, symbols)
    notes += missing_merge_notes(folder, merges, vocabulary)
    if folder.model_type == "blenderbot" and not has_tokenizer_model(folder):
        notes.append(MessagePart("blenderbot_sources_end_with_eos"))
    generation = exclude_prefix_from_limit(generation)
    if variant.has_bos and IMPORTED_BOS in symbols:
        generation["source_prefix"] = [IMPORTED_BOS]
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def adds_space(folder: HuggingFaceFolder, default: bool) -> bool:
    """Return whether the tokenizer puts a space before a text that has none."""
    in_config = folder.json_field("tokenizer_config.json", "add_prefix_space")
    before = folder.json_field(TOKENIZER_JSON, "pre_tokenizer")
    in_tokenizer = before.fields().get("add_prefix_space", in_config)
    found = in_tokenizer if has_tokenizer_model(folder) else in_config
    return default if found.value is None else found.flag()


def missing_merge_notes(
    folder: HuggingFaceFolder, merges: Sequence[Merge], vocabulary: Mapping[str, int]
) -> list[MessagePart]:
    """Return a note on merged pieces missing in the vocabulary, which become unk. Raise an error if over 10% are."""
    merged = ["".join(merge) for merge in merges]
    unknown = [piece for piece in merged if piece not in vocabulary]
    counts = {"count": len(unknown), "total": len(merged), "examples": unknown[:3]}
    if len(unknown) > _MAX_MISSING_SHARE * len(merged):
        raise ModelError("merges_vocabulary_mismatch", path=folder.path, **counts)
    return [MessagePart("merged_pieces_unknown", **counts)] if unknown else []


def _read_vocabulary(folder: HuggingFaceFolder) -> tuple[tuple[Merge, ...], dict[str, int]]:
    """Return the merges and the vocabulary ids, from merges.txt and vocab.json or from tokenizer.json."""
    if not (folder.path / "vocab.json").is_file():
        require_tokenizer_class(folder.path, folder.model_type)  # such as BertTokenizer, which has other files
        if has_tokenizer_model(folder):
            return read_bpe_json(folder)
    return read_merges(folder.require_file("merges.txt")), read_vocabulary(folder.require_file("vocab.json"))
