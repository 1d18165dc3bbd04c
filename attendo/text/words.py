"""Lossless word tokenizer."""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import ClassVar

from attendo.text.scripts import is_unspaced, unspaced_class
from attendo.text.tokenizer import MARK, UNK, UNKNOWN_TEXT, split_at_symbols
from attendo.text.vocabulary import RuleTokenizer

_MAX_WORD_UNITS = 12  # characters of the longest word that is looked for
_UNKNOWN_COST = 1e3  # more than that of any text of known words as long as a line


class Words(RuleTokenizer):
    """Word tokenizer. A piece is a word or a punctuation mark with the space before it, or one white-space character.

    Words of Chinese and other scripts without spaces have to be separated by spaces in the training text. Later texts
    need no spaces: a run of letters that is not in the vocabulary is read as words that are.

    A text is read with one extra space at its start, so that `cat` is the same entry in every position. A symbol has no
    space in its piece: a space before it is a separate piece. No space is added before a symbol at the start.
    """

    kind: ClassVar[str] = "words"
    unknown_text: ClassVar[str] = f" {UNKNOWN_TEXT}"
    required: ClassVar[tuple[str, ...]] = (" ",)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the exact text if no id is UNK. UNK becomes ` ⁇`. Words that were found in a run have spaces."""
        return super().decode(ids).removeprefix(" ")

    def unknown(self, text: str) -> list[str]:
        """Return the words and punctuation marks that are not in the vocabulary."""
        return [piece.removeprefix(" ") for piece in super().unknown(text)]

    def _split(self, text: str) -> Iterator[str]:
        end = ""  # of the piece before
        for piece in super()._split(text):
            if piece.isascii() or piece in self._ids:
                yield piece
            elif any(map(is_unspaced, piece)):
                yield from self._find_words(piece.removeprefix(" "))
            else:  # a mark behind Chinese, which training text has behind a space
                yield f" {piece}" if is_unspaced(end or " ") and f" {piece}" in self._ids else piece
            end = piece[-1]

    def _find_words(self, run: str) -> list[str]:
        """Split a run of letters into words of the vocabulary: few unknown characters, then few and frequent words.

        Letters of other scripts, as in 我爱NLP, stay together. So do unknown characters side by side.
        """
        units = _unit_pattern().findall(run)
        best: list[tuple[float, int, bool]] = [(0.0, 0, True)]  # cost, start and known of the last word, by its end
        for end in range(1, len(units) + 1):
            choices = [(best[end - 1][0] + _UNKNOWN_COST, end - 1, False)]
            for start in range(max(0, end - _MAX_WORD_UNITS), end):
                found = self._ids.get(f" {''.join(units[start:end])}", UNK)
                choices += [(best[start][0] + math.log(found), start, True)] if found != UNK else []
            best.append(min(choices))
        words: list[str] = []
        end, was_known = len(units), True
        while end:
            _, start, known = best[end]
            word = "".join(units[start:end])
            if known or was_known:
                words.append(f" {word}")
            else:
                words[-1] = f" {word}{words[-1][1:]}"
            end, was_known = start, known
        return words[::-1]

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


@cache
def _unit_pattern() -> re.Pattern[str]:
    """Match one letter of a script without spaces, or other characters up to the next one."""
    letters = unspaced_class()
    return re.compile(f"[{letters}]|[^{letters}]+", re.DOTALL)
