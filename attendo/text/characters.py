"""Tokenizers by characters, by decomposed characters (NFD) and by white space."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from attendo.text.tokenizer import (
    UNK,
    UNKNOWN_TEXT,
    BaseTokenizer,
    parse_pieces,
    parse_symbols,
    split_between_symbols,
    strip_special_ids,
    validate_special_tokens,
    write_header,
)
from attendo.text.words import Vocabulary, build_vocabulary


@dataclass(frozen=True)
class Characters(BaseTokenizer):
    """One id per code point or symbol. Subclasses only change how text is split."""

    kind: ClassVar[str] = "characters"
    separator: ClassVar[str] = ""  # between two pieces of a text
    vocabulary: Vocabulary
    symbols: tuple[str, ...] = ()  # the first entries of the vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], max_size: int | None = None, symbols: Sequence[str] = ()) -> Self:
        """Build from the most frequent pieces. `max_size` limits the vocabulary, control pieces included."""
        special_tokens = validate_special_tokens(symbols)
        pieces = (piece for text in texts for piece in cls._split(text, special_tokens))
        return cls(build_vocabulary(pieces, max_size, required=special_tokens), special_tokens)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> Self:
        """Read the tokenizer of a file whose header is already parsed. A fault raises a `ModelError`."""
        entries = parse_pieces(path, header, from_disk=str, is_piece=cls._is_piece)
        return cls(Vocabulary(entries), parse_symbols(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """Return one id per piece, UNK for a piece that is not in the vocabulary."""
        return self.vocabulary.ids(self._split(text, self.symbols))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text. It is exact if no id is UNK."""
        text_ids = strip_special_ids(ids, self.vocab_size)
        return self.separator.join(UNKNOWN_TEXT if each == UNK else self.vocabulary.entry(each) for each in text_ids)

    def unknown(self, text: str) -> list[str]:
        """Return the pieces that are not in the vocabulary."""
        return self.vocabulary.missing(self._split(text, self.symbols))

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, self.vocabulary.entries, self.symbols)]

    @classmethod
    def _split(cls, text: str, symbols: tuple[str, ...]) -> Iterable[str]:
        return split_between_symbols(text, symbols, cls._split_text) if symbols else cls._split_text(text)

    def _piece_text(self, piece_id: int) -> str:
        return self.vocabulary.entry(piece_id)

    @staticmethod
    def _split_text(text: str) -> Iterable[str]:
        """Return the pieces of a text without symbols."""
        return text

    @staticmethod
    def _is_piece(piece: str) -> bool:
        return len(piece) == 1


class NFDCharacters(Characters):
    """Encodes the canonical decomposition (NFD) and decodes to composed characters (NFC).

    Decomposition exposes shared parts: é and e, 한 and 하.
    """

    kind: ClassVar[str] = "decomposed"

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text with composed characters. It is exact if no id is UNK."""
        return unicodedata.normalize("NFC", super().decode(ids))

    @staticmethod
    def _split_text(text: str) -> Iterable[str]:
        return unicodedata.normalize("NFD", text)


class WhitespaceTokenizer(Characters):
    """Splits at white space. A piece is a word or a symbol.

    White space is not kept: decoded text has one space between pieces.
    """

    kind: ClassVar[str] = "spaced"
    separator: ClassVar[str] = " "

    @staticmethod
    def _split_text(text: str) -> Iterable[str]:
        return text.split()

    @staticmethod
    def _is_piece(piece: str) -> bool:
        return bool(piece) and not any(character.isspace() for character in piece)
