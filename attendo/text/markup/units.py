"""Words, and signs in scripts that have none: what a tag may stand before or behind."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

# As Unicode begins the names of letters that are written without spaces between words.
_SCRIPTS_WITHOUT_SPACES = ("CJK ", "HIRAGANA ", "KATAKANA", "IDEOGRAPHIC ", "THAI ", "LAO ", "MYANMAR ", "KHMER ")


@dataclass(frozen=True)
class Units:
    """Where each begins and ends in a text."""

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    @staticmethod
    def of(text: str) -> "Units":
        begins: list[int] = []
        ends: list[int] = []
        in_word = False
        for place, character in enumerate(text):
            kind = _kind(character)
            goes_on = (kind == "mark" and bool(ends) and ends[-1] == place) or (kind == "letter" and in_word)
            if goes_on:
                ends[-1] = place + 1
            elif kind != "space":
                begins.append(place)
                ends.append(place + 1)
            in_word = kind == "letter" or (kind == "mark" and in_word)
        return Units(text, begins, ends)

    def __len__(self) -> int:
        return len(self.begins)

    def before(self, at: int) -> int:
        """How many begin before so many characters."""
        return bisect_left(self.begins, at)

    def at(self, character: int) -> int:
        """The one that this character is in, or behind."""
        return max(0, bisect_right(self.begins, character) - 1)

    def cuts(self, places: Iterable[int]) -> dict[str, list[int]]:
        """The words that have one of these places inside them, and where."""
        inside: dict[int, set[int]] = {}
        for at in places:
            number = self.at(at)
            if self.begins and self.begins[number] < at < self.ends[number]:
                inside.setdefault(number, set()).add(at - self.begins[number])
        found: dict[str, set[int]] = {}
        for number, cut in inside.items():
            found.setdefault(self.text[self.begins[number] : self.ends[number]], set()).update(cut)
        return {word: sorted(cut) for word, cut in found.items()}

    def cut(self, cuts: Mapping[str, Sequence[int]]) -> "Units":
        """With these words in pieces: the 2 of H2O may be set low in any language."""
        if not cuts:
            return self
        begins: list[int] = []
        ends: list[int] = []
        for begin, end in zip(self.begins, self.ends, strict=True):
            inside = [begin + cut for cut in cuts.get(self.text[begin:end], ())]
            begins += [begin, *inside]
            ends += [*inside, end]
        return Units(self.text, begins, ends)


def needs_space_behind(character: str) -> bool:
    """Whether what follows this character is set apart by a space. No character needs none."""
    if not character or _without_spaces(character):
        return False
    return unicodedata.category(character) not in ("Ps", "Pi")


def needs_space_before(character: str) -> bool:
    return bool(character) and character.isalnum() and not _without_spaces(character)


@lru_cache(maxsize=8192)
def _kind(character: str) -> Literal["letter", "mark", "space", "alone"]:
    if character.isspace():
        return "space"
    if unicodedata.category(character)[0] == "M" or character in "\u200c\u200d":
        return "mark"
    return "letter" if character.isalnum() and not _without_spaces(character) else "alone"


@lru_cache(maxsize=8192)
def _without_spaces(character: str) -> bool:
    """Wide signs have their space in them; the syllables of Korean are wide, and its words have spaces."""
    if unicodedata.name(character, "").startswith(_SCRIPTS_WITHOUT_SPACES):
        return True
    return not character.isalnum() and unicodedata.east_asian_width(character) in ("W", "F")
