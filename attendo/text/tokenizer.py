"""The tokenizer protocol, the four control ids, user-defined symbols, and the JSON file of a tokenizer.

The file has the class of the tokenizer, and its pieces if it has a list of them.
"""

import json
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from attendo import model_files
from attendo.errors import ModelError, UsageError, shorten

PAD, UNK, BOS, EOS = 0, 1, 2, 3
CONTROL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
MARK = "▁"  # replaces the space before a piece in files
UNKNOWN_TEXT = "⁇"  # displayed for a generated UNK
_NO_FLAGS: Mapping[str, bool] = {}
_FILE_FORMAT, _FILE_VERSION = "attendo.tokenizer", 1


@runtime_checkable
class Tokenizer(Protocol):
    """Converts text to ids and back. Encoding never returns a control id other than UNK."""

    @property
    def kind(self) -> str:
        """Name of the class in the tokenizer file, such as `words`, `characters`, `bytes` or `sentencepiece`."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """Texts that are always one id each. The ids are 4, 5 and so on."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos and eos."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. Faster than `encode` for a whole corpus."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Control ids other than UNK are skipped."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one readable label per id."""

    def unknown(self, text: str) -> list[str]:
        """Return the parts of a text that become UNK, in order."""

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the files that `load_tokenizer(folder, name)` reads, and return their paths."""


class BaseTokenizer(ABC):
    """Methods that are the same in all tokenizers. Ids are control pieces, then symbols, then other pieces."""

    symbols: tuple[str, ...]

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos and eos."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [self.encode(text) for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one readable label per id: control pieces and symbols by name, other pieces without their space."""
        special = (*CONTROL_PIECES, *self.symbols)
        return [
            special[each] if each < len(special) else display_piece(self._piece_text(each))
            for each in validate_ids(ids, self.vocab_size)
        ]

    @abstractmethod
    def _piece_text(self, piece_id: int) -> str:
        """Return the text of a piece that is neither a control piece nor a symbol."""


def validate_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """Return the ids as plain integers. Raise a `UsageError` for an id outside the vocabulary."""
    plain = [operator.index(each) for each in ids]
    for each in plain:
        if not 0 <= each < vocab_size:
            raise UsageError("id_outside_vocabulary", token_id=each, last=vocab_size - 1)
    return plain


def strip_special_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """Return the validated ids without pad, bos and eos."""
    return [each for each in validate_ids(ids, vocab_size) if each not in (PAD, BOS, EOS)]


def display_piece(piece: str) -> str:
    """Return the readable form of a piece: no leading space, white space alone made visible."""
    if piece == " ":
        return "␣"
    if piece.isspace():
        return piece.encode("unicode_escape").decode("ascii")
    return piece.removeprefix(" ")


def end_source(ids: Sequence[int]) -> list[int]:
    """Return a source as the encoder reads it: with EOS as its last token.

    A source that contains EOS is complete: symbols follow its EOS (`source_suffix`). So is one that begins with BOS
    (`source_prefix`), as sources of Gemma models.
    """
    return [*ids] if is_complete_source(ids) else [*ids, EOS]


def is_complete_source(ids: Sequence[int]) -> bool:
    """Return whether a source needs no EOS at its end."""
    return EOS in ids or (len(ids) > 0 and ids[0] == BOS)


def strip_line_end(text: str) -> str:
    """Remove the line end, as of lines from a loop over a file."""
    return text.replace("\r\n", "\n").rstrip("\r\n")


def replace_newlines(text: str) -> str:
    """Replace each line break by a space."""
    # 30 times as fast as str.translate, which reads character by character.
    return text.replace("\r", " ").replace("\n", " ")


def require_unicode(text: str) -> None:
    """Raise a `UsageError` for an unpaired surrogate, which has no UTF-8 encoding."""
    if not is_unicode(text):
        raise UsageError("text_unpaired_surrogate", text=text[:40])


def is_unicode(text: str) -> bool:
    """Return False for a text with an unpaired surrogate, which cannot be written to a file."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def validate_special_tokens(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols. Raise a `UsageError` for one that is ambiguous in a text."""
    if isinstance(symbols, str):
        raise UsageError("symbols_not_a_list", value=shorten(symbols))
    for symbol in symbols:
        if code := _find_fault(symbol):
            raise UsageError(code, symbol=shorten(symbol))
    if duplicates := sorted({symbol for symbol in symbols if list(symbols).count(symbol) > 1}):
        raise UsageError("symbol_duplicate", symbol=shorten(duplicates[0]))
    return tuple(symbols)


def split_at_symbols(text: str, symbols: tuple[str, ...]) -> list[str]:
    """Return text and symbols in alternation, text first. Texts may be empty. The longest symbol matches first."""
    return _pattern(symbols).split(text) if symbols else [text]


def split_between_symbols(text: str, symbols: tuple[str, ...], split: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the symbols of a text and the pieces of the text between them, in order."""
    parts = split_at_symbols(text, symbols)
    return [piece for n, part in enumerate(parts) for piece in ([part] if n % 2 else split(part))]


def _find_fault(symbol: str) -> str:
    if not symbol or any(character.isspace() for character in symbol):
        return "symbol_has_whitespace"
    if symbol in CONTROL_PIECES:
        return "symbol_is_control_piece"
    if re.fullmatch("<0x[0-9A-F]{2}>", symbol):
        return "symbol_is_byte_piece"
    if MARK in symbol or "\0" in symbol or not is_unicode(symbol):
        return "symbol_has_reserved_character"
    return ""


@lru_cache(maxsize=64)
def _pattern(symbols: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})")


def header_path(folder: Path, name: str) -> Path:
    """Return the path of the JSON file of the tokenizer `name`."""
    return folder / f"{name}.tokenizer.json"


def write_header(
    folder: Path,
    name: str,
    kind: str,
    entries: Sequence[str] | None = None,
    symbols: Sequence[str] = (),
    flags: Mapping[str, bool] = _NO_FLAGS,
) -> Path:
    """Write the JSON file with one piece per line, so that it is easy to read and to diff."""
    lines = [f'"format": {json.dumps(_FILE_FORMAT)}', f'"version": {_FILE_VERSION}', f'"kind": {json.dumps(kind)}']
    lines += [f"{json.dumps(flag)}: {json.dumps(value)}" for flag, value in flags.items()]
    if symbols:
        lines.append(f'"symbols": {_format_list(symbols)}')
    if entries is not None:
        lines.append(f'"pieces": {_format_list((*CONTROL_PIECES, *entries))}')
    path = header_path(folder, name)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
    return path


def read_header(folder: Path, name: str) -> dict[str, object]:
    """Return the validated content of the JSON file. Raise a `ModelError` for another format or version."""
    path = header_path(folder, name)
    try:
        header = model_files.parse_json(read_bytes(path))
    except ValueError as error:
        raise ModelError("tokenizer_json_invalid", path=path, reason=error) from None
    if not isinstance(header, dict) or header.get("format") != _FILE_FORMAT:
        raise ModelError("tokenizer_format_unknown", path=path, expected=_FILE_FORMAT)
    if type(header.get("version")) is not int or header["version"] != _FILE_VERSION:
        raise ModelError(
            "tokenizer_version_unsupported", path=path, found=shorten(header.get("version")), expected=_FILE_VERSION
        )
    unknown = sorted(header.keys() - {"format", "version", "kind", "symbols", "pieces", "adds_space"})
    if unknown:
        raise ModelError("tokenizer_key_unknown", path=path, key=shorten(unknown[0]))
    return header


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raise a `ModelError` if it cannot be read."""
    return model_files.read_bytes(path, "a model folder needs its tokenizer files")


def parse_flag(path: Path, header: dict[str, object], name: str) -> bool:
    """Return a flag of a tokenizer, False if it is missing. Raise a `ModelError` that names a fault."""
    value = header.get(name, False)
    if not isinstance(value, bool):
        raise ModelError("tokenizer_flag_invalid", path=path, name=name, value=shorten(value))
    return value


def parse_symbols(path: Path, header: dict[str, object]) -> tuple[str, ...]:
    """Return the symbols of a tokenizer. Raise a `ModelError` that names a fault."""
    symbols = header.get("symbols", [])
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise ModelError("tokenizer_symbols_not_strings", path=path)
    try:
        return validate_special_tokens(symbols)
    except UsageError as error:
        raise ModelError("tokenizer_symbols_damaged", path=path, error=error) from None


def parse_pieces(
    path: Path,
    header: dict[str, object],
    from_disk: Callable[[str], str],
    is_piece: Callable[[str], bool],
    required: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the pieces after the control pieces, as in memory. Raise a `ModelError` that names a fault."""
    pieces = header.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ModelError("tokenizer_pieces_not_strings", path=path)
    if tuple(pieces[: len(CONTROL_PIECES)]) != CONTROL_PIECES:
        raise ModelError("tokenizer_control_pieces_missing", path=path, pieces=" ".join(CONTROL_PIECES))
    entries = tuple(from_disk(piece) for piece in pieces[len(CONTROL_PIECES) :])
    symbols = parse_symbols(path, header)
    if entries[: len(symbols)] != symbols:
        raise ModelError("tokenizer_symbols_misplaced", path=path, piece=CONTROL_PIECES[-1])
    seen: set[str] = set(CONTROL_PIECES)
    for position, piece in enumerate(entries):
        if piece in seen:
            raise ModelError("tokenizer_piece_duplicate", path=path, piece=shorten(piece))
        if not (position < len(symbols) or is_piece(piece)) or not is_unicode(piece):
            raise ModelError("tokenizer_piece_invalid", path=path, piece=shorten(piece), kind=header["kind"])
        seen.add(piece)
    for piece in required:
        if piece not in seen:
            raise ModelError("tokenizer_piece_missing", path=path, piece=piece)
    return entries


def _format_list(texts: Sequence[str]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(text, ensure_ascii=False)}" for text in texts) + "\n]"
