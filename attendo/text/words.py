"""Word tokenizer that keeps every character, and the vocabulary of rule-based tokenizers."""

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
    EOS,
    MARK,
    UNK,
    UNKNOWN_TEXT,
    checked_ids,
    checked_symbols,
    is_unicode,
    label,
    split_at,
    spoken_ids,
)
from attendo.text.tokenizer_files import piece_list, symbol_list, write_header


@dataclass(frozen=True)
class Vocabulary:
    """The control pieces stand first and are not looked up, so no text can name them."""

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
        """The id of each piece, UNK for those that are not in the list."""
        return [self._ids.get(piece, UNK) for piece in pieces]

    def missing(self, pieces: Iterable[str]) -> list[str]:
        """The pieces that are not in the list, in order."""
        return [piece for piece in pieces if piece not in self._ids]

    def entry(self, piece_id: int) -> str:
        """The piece of an id that is no control id."""
        return self.entries[piece_id - len(CONTROL_PIECES)]


def most_frequent(pieces: Iterable[str], limit: int | None, always: tuple[str, ...] = ()) -> Vocabulary:
    """At most `limit` ids, control pieces included: first `always`, then by count, ties by text."""
    smallest = len(CONTROL_PIECES) + len(always) + 1
    if limit is not None and limit < smallest:
        raise UsageError("vocabulary_too_small", size=limit, minimum=smallest)
    counts = Counter(pieces)
    if not counts:
        raise DataError("vocabulary_text_empty")
    for piece in counts:
        if not is_unicode(piece):
            raise DataError("piece_unpaired_surrogate", piece=piece)
    ranked = sorted(counts.keys() - set(always), key=lambda piece: (-counts[piece], piece))
    room = None if limit is None else limit - len(CONTROL_PIECES) - len(always)
    return Vocabulary((*always, *ranked[:room]))


@dataclass(frozen=True)
class Words:
    """A piece is a word or a sign with the space before it, or one white-space character.

    A text is read as if one space stood before it, so that `cat` is one entry wherever it stands. A symbol is a
    piece without the space before it, which is then a piece of its own; before a symbol that begins the text none
    is read.
    """

    kind: ClassVar[str] = "words"
    vocabulary: Vocabulary
    symbols: tuple[str, ...] = ()  # the first entries of the vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], limit: int | None = None, symbols: Sequence[str] = ()) -> "Words":
        """The most frequent pieces of the texts; `limit` is the largest vocabulary, control pieces included."""
        whole = checked_symbols(symbols)
        pieces = (piece for text in texts for piece in cut(text, whole))
        return cls(most_frequent(pieces, limit, always=(*whole, " ")), whole)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Words":
        """The tokenizer in a file whose header was read; a fault is a `ModelError`."""
        entries = piece_list(path, header, from_disk=_from_disk, is_piece=_is_piece, always=(" ",))
        return cls(Vocabulary(entries), symbol_list(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """One id per piece, UNK for a piece that is not in the vocabulary."""
        return self.vocabulary.ids(cut(text, self.symbols))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text where no id is UNK; UNK reads as a sign with a space before it."""
        spoken = spoken_ids(ids, self.vocab_size)
        pieces = (f" {UNKNOWN_TEXT}" if each == UNK else self.vocabulary.entry(each) for each in spoken)
        return "".join(pieces).removeprefix(" ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Words without their space, control pieces by name."""
        checked = checked_ids(ids, self.vocab_size)
        return [CONTROL_PIECES[each] if each <= EOS else label(self.vocabulary.entry(each)) for each in checked]

    def unknown(self, text: str) -> list[str]:
        """The words and signs that are not in the vocabulary."""
        return [piece.removeprefix(" ") for piece in self.vocabulary.missing(cut(text, self.symbols))]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        entries = [_to_disk(piece) for piece in self.vocabulary.entries]
        return [write_header(folder, name, self.kind, entries, self.symbols)]


def cut(text: str, symbols: tuple[str, ...] = ()) -> list[str]:
    """The pieces of a text: joined, they are the text, with one space before it unless it begins with a symbol."""
    first, *rest = split_at(text, symbols)
    pieces: list[str] = _pattern().findall(" " + first) if first else []
    for position, part in enumerate(rest):
        pieces += _pattern().findall(part) if position % 2 else [part]
    return pieces


@cache
def _pattern() -> re.Pattern[str]:
    """A word may hold marks, joiners and inner apostrophes; any other sign stands alone with its marks."""
    # Python's \w leaves out combining marks, which would cut most Indic words; no mark lies outside these two ranges.
    code_points = (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0))
    marks = "".join(chr(point) for point in code_points if unicodedata.category(chr(point)).startswith("M"))
    joining = f"[{re.escape(marks)}\u200c\u200d]"
    word = rf"\w+(?:{joining}+\w*)*"
    return re.compile(rf" ?{word}(?:['’]{word})*| ?\S{joining}*|\s")


def _to_disk(piece: str) -> str:
    """The space before a piece as a visible mark; a mark that a user wrote gets a backslash."""
    escaped = piece.replace(MARK, f"\\{MARK}")
    return f"{MARK}{escaped[1:]}" if escaped.startswith(" ") else escaped


def _from_disk(written: str) -> str:
    piece = f" {written[1:]}" if written.startswith(MARK) else written
    return piece.replace(f"\\{MARK}", MARK)


def _is_piece(piece: str) -> bool:
    """Looser than `cut`, whose idea of a letter grows with Python's Unicode tables."""
    if piece.isspace():
        return len(piece) == 1
    return bool(piece) and not any(character.isspace() for character in piece.removeprefix(" "))
