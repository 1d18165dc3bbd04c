"""Reads the tokenizers of T5 folders: SentencePiece, tokenizer.json alone, bytes (ByT5) and byte-level BPE (CodeT5).

The first ids are those of the tokenizer. Sentinels `<extra_id_0>`, `<extra_id_1>` … follow in reverse order, so the
first one has the last id. They and other special tokens become symbols of attendo.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from attendo.errors import MessagePart, ModelError, UsageError, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder, JsonField
from attendo.interop.huggingface.read_bart import IMPORTED_BOS, adds_space, missing_merge_notes
from attendo.interop.huggingface.read_tokenizers import (
    TOKENIZER_JSON,
    add_user_pieces,
    build_names_and_symbols,
    has_tokenizer_model,
    non_text_ids,
    read_added_tokens,
    read_additional_special_tokens,
    read_bpe_json,
    read_pieces,
    read_sentencepiece_json,
    read_special_flags,
    read_vocabulary,
    require_fit,
)
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text import BOS, CONTROL_PIECES, Bytes, Tokenizer
from attendo.text.byte_level_bpe import ByteLevelBPE, Merge, read_merges
from attendo.text.imported_sentencepiece import ImportedSentencePiece
from attendo.text.sentencepiece import PieceType
from attendo.text.tokenizer import validate_special_tokens

_SENTINEL, _NUM_SENTINELS, _NUM_BYTE_SENTINELS = "<extra_id_", 100, 125
_SENTENCEPIECE_FILES = ("spiece.model", "tokenizer.model")  # the second: of Llama, in Pile-T5
_SENTINEL_CLASSES = ("", "T5Tokenizer", "MT5Tokenizer")  # they add sentinels that no file lists
_NUM_BYTE_CONTROLS = 3  # of ByT5: pad, eos, unk
_MAX_LISTED = 3


@dataclass(frozen=True)
class T5Vocabulary:
    """Pieces and special tokens with their ids, and what is needed to build the tokenizer."""

    ids: dict[str, int]
    unk: int
    symbol_ids: list[int]
    model: bytes = field(default=b"", repr=False)  # of SentencePiece
    merges: tuple[Merge, ...] | None = field(default=None, repr=False)  # of byte-level BPE
    adds_space: bool = False  # of byte-level BPE
    source_prefix: tuple[str, ...] = ()
    notes: tuple[MessagePart, ...] = ()

    def build(self, order: VocabularyPermutation) -> Tokenizer:
        names, symbols = build_names_and_symbols(self.ids, order, self.symbol_ids)
        if self.merges is not None:
            return ByteLevelBPE(self.merges, names, symbols, self.adds_space)
        return ImportedSentencePiece(self.model, names, symbols) if self.model else Bytes(symbols)


def read_t5_vocabulary(folder: HuggingFaceFolder, size: int) -> T5Vocabulary:
    """Read the tokenizer files. `size` is the number of rows of the network; rows without a piece are allowed."""
    if _tokenizer_class(folder) == "ByT5Tokenizer":
        return _read_bytes(folder, size)
    has_bpe = (folder.path / "vocab.json").is_file() or _is_byte_level(folder)
    files = [name for name in _SENTENCEPIECE_FILES if (folder.path / name).is_file()]
    found = _read_byte_pairs(folder, size) if has_bpe and not files else _read_sentencepiece(folder, files, size)
    require_fit(folder.path, found.ids, size)
    return found


def _tokenizer_class(folder: HuggingFaceFolder) -> str:
    """Return the class in tokenizer_config.json or config.json; empty if neither names one."""
    name = folder.json_field("tokenizer_config.json", "tokenizer_class").text()
    return (name or folder.setting("tokenizer_class").text() or "").removesuffix("Fast")


def _read_sentencepiece(folder: HuggingFaceFolder, files: Sequence[str], size: int) -> T5Vocabulary:
    if not files and has_tokenizer_model(folder):
        model, ids = read_sentencepiece_json(folder)
        unk, flags = ids.get("<unk>", 0), read_special_flags(folder)
        ids = {piece: number for piece, number in ids.items() if not flags.get(piece)}  # sentinels are symbols
        control_ids = non_text_ids(ids)
    else:
        path = folder.require_file(files[0] if files else _SENTENCEPIECE_FILES[0])
        model = read_bytes(path, COPY_AGAIN)
        pieces = read_pieces(path, model)
        ids = {piece.text: number for number, piece in enumerate(pieces)}
        unk = next((n for n, piece in enumerate(pieces) if piece.type == PieceType.UNKNOWN), 0)
        control_ids = [number for number, piece in enumerate(pieces) if piece.type == PieceType.CONTROL]
    require_fit(folder.path, ids, size)
    added, texts, notes = _read_added(folder, ids, size)
    model = add_user_pieces(model, list(texts))
    symbol_ids = [*control_ids, *sorted(added.values())]
    ids = {**ids, **added, **texts}
    return T5Vocabulary(ids, unk, symbol_ids, model, source_prefix=_read_source_prefix(folder, ids), notes=notes)


def _read_added(
    folder: HuggingFaceFolder, ids: dict[str, int], size: int
) -> tuple[dict[str, int], dict[str, int], tuple[MessagePart, ...]]:
    """Return the special tokens and the text tokens that are added to `ids`, and notes on tokens without a row."""
    flags = read_special_flags(folder)
    listed = set(read_additional_special_tokens(folder))
    given = {name: number for name, number in read_added_tokens(folder).items() if name not in ids and number < size}
    if not any(name.startswith(_SENTINEL) for name in given):
        given = {**_default_sentinels(folder, ids, size), **given}
    used, special, texts, ignored = set(ids.values()), dict[str, int](), dict[str, int](), list[str]()
    for name, number in sorted(given.items(), key=lambda each: each[1]):
        is_special = flags.get(name, False) or name in listed or name.startswith(_SENTINEL)
        if number in used or not _is_token(name, is_special):
            ignored.append(name)
            continue
        used.add(number)
        (special if is_special else texts)[name] = number
    listing = list_names(map(shorten, ignored), _MAX_LISTED)
    notes = (MessagePart("added_tokens_ignored", count=len(ignored), tokens=listing),) if ignored else ()
    return special, texts, notes


def _default_sentinels(folder: HuggingFaceFolder, ids: dict[str, int], size: int) -> dict[str, int]:
    """Return the sentinels behind the pieces, the first one last, unless the pieces include them (mT5)."""
    has_file = any((folder.path / name).is_file() for name in _SENTENCEPIECE_FILES)
    if not has_file or _tokenizer_class(folder) not in _SENTINEL_CLASSES or any(_SENTINEL in piece for piece in ids):
        return {}
    count = folder.json_field("tokenizer_config.json", "extra_ids").count()
    count = _NUM_SENTINELS if count is None else min(count, size)
    first = max(ids.values()) + 1
    found = {f"{_SENTINEL}{n}>": first + count - 1 - n for n in range(count)}
    return {name: number for name, number in found.items() if number < size}


def _is_token(name: str, is_special: bool) -> bool:
    """Return True if attendo can read the token in a text. A symbol has no spaces, a piece has no line break."""
    if not is_special:
        return bool(name) and not any(character in name for character in "\r\n\0")
    try:
        return bool(validate_special_tokens([name]))
    except UsageError:
        return False


def _read_source_prefix(folder: HuggingFaceFolder, ids: dict[str, int]) -> tuple[str, ...]:
    """Return the tokens before a source, from the template in tokenizer.json: `<s>`, or Gemma's `<bos>` without EOS."""
    template = folder.json_field(TOKENIZER_JSON, "post_processor").content().get("single")
    parts = template if isinstance(template, list) else []
    names = [_special_name(part) for part in parts]
    if names == ["<bos>", None]:
        return (CONTROL_PIECES[BOS],)
    before = names[: names.index(None)] if None in names else []
    if not before:
        return ()
    if before != ["<s>"] or "<s>" not in ids:
        field = JsonField(folder.path / TOKENIZER_JSON, "post_processor.single", before)
        raise field.make_error("needs_source_template")
    return (IMPORTED_BOS,)


def _special_name(part: Any) -> str | None:
    """Return the name of a special token in a template; None for the text."""
    token = part.get("SpecialToken") if isinstance(part, dict) else None
    return str(token.get("id")) if isinstance(token, dict) else None


def _read_bytes(folder: HuggingFaceFolder, size: int) -> T5Vocabulary:
    """Read ByT5's ids: pad, eos, unk, 256 bytes, then sentinels with ascending numbers. Other rows get a name too."""
    first = _NUM_BYTE_CONTROLS + 256
    if size < first:
        path = folder.path / "config.json"
        raise ModelError("byte_rows_missing", path=path, size=size, needed=first)
    added = {name: number for name, number in read_added_tokens(folder).items() if first <= number < size}
    names = {number: name for name, number in added.items() if _is_token(name, True)}
    count = folder.json_field("tokenizer_config.json", "extra_ids").count()
    count = _NUM_BYTE_SENTINELS if count is None else count
    for number in range(first, size):
        default = f"{_SENTINEL}{number - first}>" if number - first < count else f"<row_{number}>"
        if number not in names:
            names[number] = default if default not in added else f"<row_{number}>"
    ids = {name: number for number, name in sorted(names.items())}
    if len(ids) < size - first:
        raise JsonField(folder.path / "tokenizer_config.json", "added_tokens_decoder", "").make_error("needs_token_id")
    note = MessagePart("line_breaks_are_spaces")
    return T5Vocabulary(ids, _NUM_BYTE_CONTROLS - 1, sorted(ids.values()), notes=(note,))


def _is_byte_level(folder: HuggingFaceFolder) -> bool:
    return folder.json_field(TOKENIZER_JSON, "pre_tokenizer").content().get("type") == "ByteLevel"


def _read_byte_pairs(folder: HuggingFaceFolder, size: int) -> T5Vocabulary:
    if (folder.path / "vocab.json").is_file():
        merges = read_merges(folder.require_file("merges.txt"))
        ids = read_vocabulary(folder.require_file("vocab.json"))
    else:
        merges, ids = read_bpe_json(folder)
    added, texts, notes = _read_added(folder, ids, size)
    if texts:
        listing = list_names(map(shorten, texts), _MAX_LISTED)
        notes += (MessagePart("added_tokens_ignored", count=len(texts), tokens=listing),)
    notes += (*missing_merge_notes(folder, merges, ids), MessagePart("line_breaks_are_spaces"))
    symbol_ids = [*non_text_ids(ids), *sorted(added.values())]
    prefix = (IMPORTED_BOS,) if "<s>" in ids else ()
    unk, space = ids.get("<unk>", 0), adds_space(folder, default=False)
    return T5Vocabulary({**ids, **added}, unk, symbol_ids, b"", merges, space, prefix, notes)
