"""Pieces that somebody has set apart by spaces already, such as phones or the words of another tokenizer."""

from collections.abc import Iterable
from typing import ClassVar

from attendo.text.characters import Characters


class Spaced(Characters):
    """A piece is what stands between white space, or a symbol. White space itself is not kept: text comes back with
    one space between pieces.
    """

    kind: ClassVar[str] = "spaced"
    between: ClassVar[str] = " "

    @staticmethod
    def _apart(text: str) -> Iterable[str]:
        return text.split()

    @staticmethod
    def _is_piece(piece: str) -> bool:
        return bool(piece) and not any(character.isspace() for character in piece)
