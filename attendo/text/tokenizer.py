"""The tokenizer protocol, the four control ids, and user-defined symbols."""

import operator
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from attendo.errors import UsageError, shorten

PAD, UNK, BOS, EOS = 0, 1, 2, 3
CONTROL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
MARK = "▁"  # stands for the space before a piece, in files
UNKNOWN_TEXT = "⁇"  # what a person reads where UNK was generated


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back; whatever a user writes, no control id but UNK comes out."""

    @property
    def kind(self) -> str:
        """The name in the tokenizer's file: `words`, `characters`, `bytes`, `sentencepiece`."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The texts that are one id each wherever they stand; the ids are 4, 5 and so on."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without bos and eos."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; the quick way for a whole corpus."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control ids other than UNK are left out."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One label per id, for a person to read."""

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that become UNK, in order."""

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the files that `load_tokenizer(folder, name)` reads, and name them."""


def validate_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids as plain integers; one outside the vocabulary is a `UsageError`."""
    plain = [operator.index(each) for each in ids]
    for each in plain:
        if not 0 <= each < vocab_size:
            raise UsageError("id_outside_vocabulary", token_id=each, last=vocab_size - 1)
    return plain


def strip_special_ids(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The checked ids that have a text: all but pad, bos and eos."""
    return [each for each in validate_ids(ids, vocab_size) if each not in (PAD, BOS, EOS)]


def display_piece(piece: str) -> str:
    """What a person reads for a piece written with real spaces; white space alone is made visible."""
    if piece == " ":
        return "␣"
    if piece.isspace():
        return piece.encode("unicode_escape").decode("ascii")
    return piece.removeprefix(" ")


def replace_newlines(text: str) -> str:
    """The text with each line break as a space: one line in, one line out."""
    # Thirty times as quick as str.translate, which reads the text sign by sign.
    return text.replace("\r", " ").replace("\n", " ")


def require_unicode(text: str) -> None:
    """Half of a surrogate pair has no bytes: a `UsageError`."""
    if not is_unicode(text):
        raise UsageError("text_unpaired_surrogate", text=text[:40])


def is_unicode(text: str) -> bool:
    """False for a text with half of a surrogate pair, which no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def validate_special_tokens(symbols: Sequence[str]) -> tuple[str, ...]:
    """The symbols as they are; one that could not be told from other text is a `UsageError`."""
    if isinstance(symbols, str):
        raise UsageError("symbols_not_a_list", value=shorten(symbols))
    for symbol in symbols:
        if fault := _find_fault(symbol):
            raise UsageError("symbol_invalid", symbol=shorten(symbol), fault=fault)
    if twice := sorted({symbol for symbol in symbols if list(symbols).count(symbol) > 1}):
        raise UsageError("symbol_duplicate", symbol=shorten(twice[0]))
    return tuple(symbols)


def split_at_symbols(text: str, symbols: tuple[str, ...]) -> list[str]:
    """By turns the text between symbols, which may be empty, and a symbol; the longest symbol that fits."""
    return _pattern(symbols).split(text) if symbols else [text]


def _find_fault(symbol: str) -> str:
    if not symbol or any(character.isspace() for character in symbol):
        return "must be text without white space"
    if symbol in CONTROL_PIECES:
        return "is a control piece, which no text can name"
    if re.fullmatch("<0x[0-9A-F]{2}>", symbol):
        return "is the name of a byte: choose another text"
    if MARK in symbol or "\0" in symbol or not is_unicode(symbol):
        return f"must have no {MARK}, no NUL and no half of a surrogate pair"
    return ""


@lru_cache(maxsize=64)
def _pattern(symbols: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})")
