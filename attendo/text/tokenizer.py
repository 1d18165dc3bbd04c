"""The tokenizer protocol, the four control ids, and user-defined symbols."""

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from attendo.errors import UsageError, shorten

PAD, UNK, BOS, EOS = 0, 1, 2, 3
CONTROL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
MARK = "▁"  # replaces the space before a piece in files
UNKNOWN_TEXT = "⁇"  # displayed for a generated UNK


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
