"""Lossless word tokenizer."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from attendo.text.tokenizer import MARK, UNKNOWN_TEXT, split_at_symbols
from attendo.text.vocabulary import RuleTokenizer


class Words(RuleTokenizer):
    """Word tokenizer. A piece is a word or a punctuation mark with the space before it, or one white-space character.

    A text is read with one extra space at its start, so that `cat` is the same entry in every position. A symbol has no
    space in its piece: a space before it is a separate piece. No space is added before a symbol at the start.
    """

    kind: ClassVar[str] = "words"
    unknown_text: ClassVar[str] = f" {UNKNOWN_TEXT}"
    required: ClassVar[tuple[str, ...]] = (" ",)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the exact text if no id is UNK. UNK becomes ` ⁇`."""
        return super().decode(ids).removeprefix(" ")

    def unknown(self, text: str) -> list[str]:
        """Return the words and punctuation marks that are not in the vocabulary."""
        return [piece.removeprefix(" ") for piece in super().unknown(text)]

    @classmethod
    def split(cls, text: str, symbols: tuple[str, ...] = ()) -> list[str]:
        """Split a text into pieces.

        Joined, they are the text, with one space before it unless it starts with a symbol.
        """
        first, *rest = split_at_symbols(text, symbols)
        pieces: list[str] = _word_pattern().findall(" " + first) if first else []
        for position, part in enumerate(rest):
            pieces += _word_pattern().findall(part) if position % 2 else [part]
        return pieces

    @staticmethod
    def _is_piece(piece: str) -> bool:
        """Less strict than `split`, because the set of letters grows with Python's Unicode tables."""
        if piece.isspace():
            return len(piece) == 1
        return bool(piece) and not any(character.isspace() for character in piece.removeprefix(" "))

    @staticmethod
    def _to_disk(piece: str) -> str:
        """Write the space before a piece as a visible mark. A mark in the text gets a backslash."""
        escaped = piece.replace(MARK, f"\\{MARK}")
        return f"{MARK}{escaped[1:]}" if escaped.startswith(" ") else escaped

    @staticmethod
    def _from_disk(escaped: str) -> str:
        piece = f" {escaped[1:]}" if escaped.startswith(MARK) else escaped
        return piece.replace(f"\\{MARK}", MARK)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Match a word with combining marks, joiners and inner apostrophes, or another character with its marks."""
    # Python's \w excludes combining marks, which would split most Indic words. All marks are in these two ranges.
    code_points = (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0))
    marks = "".join(chr(point) for point in code_points if unicodedata.category(chr(point)).startswith("M"))
    joiner = f"[{re.escape(marks)}\u200c\u200d]"
    word = rf"\w+(?:{joiner}+\w*)*"
    return re.compile(rf" ?{word}(?:['’]{word})*| ?\S{joiner}*|\s")
