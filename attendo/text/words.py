"""Lossless word tokenizer, and the vocabulary of rule-based tokenizers."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from attendo.errors import DataError, UsageError
from attendo.text.tokenizer import (
    CONTROL_PIECES,
    MARK,
    UNK,
    UNKNOWN_TEXT,
    BaseTokenizer,
    is_unicode,
    parse_pieces,
    parse_symbols,
    split_at_symbols,
    strip_special_ids,
    validate_special_tokens,
    write_header,
)


@dataclass(frozen=True)
class Vocabulary:
    """A list of pieces. The control pieces have the first ids and are not looked up, so no text maps to them."""

    entries: tuple[str, ...]  # the pieces after the control pieces
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {piece: position for position, piece in enumerate(self.entries, start=len(CONTROL_PIECES))}
        object.__setattr__(self, "_ids", ids)

    @property
    def size(self) -> int:
        """The number of ids, control pieces included."""
        return len(CONTROL_PIECES) + len(self.entries)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the id of each piece, or UNK."""
        return [self._ids.get(piece, UNK) for piece in pieces]

    def missing(self, pieces: Iterable[str]) -> list[str]:
        """Return the pieces that are not in the list, in order."""
        return [piece for piece in pieces if piece not in self._ids]

    def entry(self, piece_id: int) -> str:
        """Return the piece of an id that is not a control id."""
        return self.entries[piece_id - len(CONTROL_PIECES)]


def build_vocabulary(pieces: Iterable[str], max_size: int | None, required: tuple[str, ...] = ()) -> Vocabulary:
    """Build at most `max_size` ids, control pieces included: first `required`, then by count, ties by text."""
    smallest = len(CONTROL_PIECES) + len(required) + 1
    if max_size is not None and max_size < smallest:
        raise UsageError("vocabulary_too_small", size=max_size, minimum=smallest)
    counts = Counter(pieces)
    if not counts:
        raise DataError("vocabulary_text_empty")
    for piece in counts:
        if not is_unicode(piece):
            raise DataError("piece_unpaired_surrogate", piece=piece)
    ranked = sorted(counts.keys() - set(required), key=lambda piece: (-counts[piece], piece))
    limit = None if max_size is None else max_size - len(CONTROL_PIECES) - len(required)
    return Vocabulary((*required, *ranked[:limit]))


@dataclass(frozen=True)
class Words(BaseTokenizer):
    """Word tokenizer. A piece is a word or a punctuation mark with the space before it, or one white-space character.

    A text is read with one extra space at its start, so that `cat` is the same entry in every position. A symbol has no
    space in its piece: a space before it is a separate piece. No space is added before a symbol at the start.
    """

    kind: ClassVar[str] = "words"
    vocabulary: Vocabulary
    symbols: tuple[str, ...] = ()  # the first entries of the vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], max_size: int | None = None, symbols: Sequence[str] = ()) -> "Words":
        """Build from the most frequent pieces. `max_size` limits the vocabulary, control pieces included."""
        special_tokens = validate_special_tokens(symbols)
        pieces = (piece for text in texts for piece in split_pieces(text, special_tokens))
        return cls(build_vocabulary(pieces, max_size, required=(*special_tokens, " ")), special_tokens)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Words":
        """Read the tokenizer of a file whose header is already parsed. A fault raises a `ModelError`."""
        entries = parse_pieces(path, header, from_disk=_from_disk, is_piece=_is_piece, required=(" ",))
        return cls(Vocabulary(entries), parse_symbols(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """Return one id per piece, UNK for a piece that is not in the vocabulary."""
        return self.vocabulary.ids(split_pieces(text, self.symbols))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the exact text if no id is UNK. UNK becomes ` ⁇`."""
        text_ids = strip_special_ids(ids, self.vocab_size)
        pieces = (f" {UNKNOWN_TEXT}" if each == UNK else self.vocabulary.entry(each) for each in text_ids)
        return "".join(pieces).removeprefix(" ")

    def unknown(self, text: str) -> list[str]:
        """Return the words and punctuation marks that are not in the vocabulary."""
        return [piece.removeprefix(" ") for piece in self.vocabulary.missing(split_pieces(text, self.symbols))]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        entries = [_to_disk(piece) for piece in self.vocabulary.entries]
        return [write_header(folder, name, self.kind, entries, self.symbols)]

    def _piece_text(self, piece_id: int) -> str:
        return self.vocabulary.entry(piece_id)


def split_pieces(text: str, symbols: tuple[str, ...] = ()) -> list[str]:
    """Split a text into pieces.

    Joined, they are the text, with one space before it unless it starts with a symbol.
    """
    first, *rest = split_at_symbols(text, symbols)
    pieces: list[str] = _word_pattern().findall(" " + first) if first else []
    for position, part in enumerate(rest):
        pieces += _word_pattern().findall(part) if position % 2 else [part]
    return pieces


@cache
def _word_pattern() -> re.Pattern[str]:
    """Match a word with combining marks, joiners and inner apostrophes, or another character with its marks."""
    # Python's \w excludes combining marks, which would split most Indic words. All marks are in these two ranges.
    code_points = (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0))
    marks = "".join(chr(point) for point in code_points if unicodedata.category(chr(point)).startswith("M"))
    joiner = f"[{re.escape(marks)}\u200c\u200d]"
    word = rf"\w+(?:{joiner}+\w*)*"
    return re.compile(rf" ?{word}(?:['’]{word})*| ?\S{joiner}*|\s")


def _to_disk(piece: str) -> str:
    """Write the space before a piece as a visible mark. A mark in the text gets a backslash."""
    escaped = piece.replace(MARK, f"\\{MARK}")
    return f"{MARK}{escaped[1:]}" if escaped.startswith(" ") else escaped


def _from_disk(escaped: str) -> str:
    piece = f" {escaped[1:]}" if escaped.startswith(MARK) else escaped
    return piece.replace(f"\\{MARK}", MARK)


def _is_piece(piece: str) -> bool:
    """Less strict than `split_pieces`, because the set of letters grows with Python's Unicode tables."""
    if piece.isspace():
        return len(piece) == 1
    return bool(piece) and not any(character.isspace() for character in piece.removeprefix(" "))
