"""Tokenizers by characters, by decomposed characters (NFD) and by white space."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import ClassVar

from attendo.text.vocabulary import RuleTokenizer


class Characters(RuleTokenizer):
    """One id per code point or symbol."""

    kind: ClassVar[str] = "characters"


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
