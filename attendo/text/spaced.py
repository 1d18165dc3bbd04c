"""Pieces that somebody has set apart by spaces already, such as phones or the words of another tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attendo.text.files import piece_list, symbol_list, write_header
from attendo.text.symbols import checked_symbols, split_at
from attendo.text.tokenizer import CONTROL_PIECES, EOS, UNK, UNKNOWN_TEXT, checked_ids, label, spoken_ids
from attendo.text.vocabulary import Vocabulary, most_frequent


@dataclass(frozen=True)
class Spaced:
    """A piece is what stands between white space, or a symbol. White space itself is not kept: text comes back with
    one space between pieces.
    """

    kind: ClassVar[str] = "spaced"
    vocabulary: Vocabulary
    symbols: tuple[str, ...] = ()  # the first entries of the vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], limit: int | None = None, symbols: Sequence[str] = ()) -> "Spaced":
        """The most frequent pieces of the texts; `limit` is the largest vocabulary, control pieces included."""
        whole = checked_symbols(symbols)
        return cls(most_frequent((piece for text in texts for piece in _cut(text, whole)), limit, always=whole), whole)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Spaced":
        """The tokenizer in a file whose header was read; a fault is a `ModelError`."""
        entries = piece_list(path, header, from_disk=str, is_piece=_is_piece)
        return cls(Vocabulary(entries), symbol_list(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """One id per piece, UNK for a piece that is not in the vocabulary."""
        return self.vocabulary.ids(_cut(text, self.symbols))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The pieces with one space between them."""
        spoken = spoken_ids(ids, self.vocab_size)
        return " ".join(UNKNOWN_TEXT if each == UNK else self.vocabulary.entry(each) for each in spoken)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as they are, control pieces by name."""
        checked = checked_ids(ids, self.vocab_size)
        return [CONTROL_PIECES[each] if each <= EOS else label(self.vocabulary.entry(each)) for each in checked]

    def unknown(self, text: str) -> list[str]:
        """The pieces that are not in the vocabulary."""
        return self.vocabulary.missing(_cut(text, self.symbols))

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, self.vocabulary.entries, self.symbols)]


def _cut(text: str, symbols: tuple[str, ...]) -> list[str]:
    parts = split_at(text, symbols)
    return [piece for position, part in enumerate(parts) for piece in ([part] if position % 2 else part.split())]


def _is_piece(piece: str) -> bool:
    return bool(piece) and not any(character.isspace() for character in piece)
