"""Segments to translate with the positions of their inline tags, and word boundaries."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from attendo.text.markup.parser import Kind, Part, read

# As Unicode begins the names of letters that are written without spaces between words.
_SCRIPTS_WITHOUT_SPACES = ("CJK ", "HIRAGANA ", "KATAKANA", "IDEOGRAPHIC ", "THAI ", "LAO ", "MYANMAR ", "KHMER ")


class Mark(NamedTuple):
    """A tag, or something that is kept as it is, at a place in a text."""

    kind: Literal["open", "close", "atom"]
    at: int  # characters of the text before it
    begin: int  # in the input
    end: int
    element: int = -1  # the two tags of one have the same


@dataclass(frozen=True)
class Segment:
    """A text to translate, without tags and with single spaces, and the part of the input it stands for."""

    text: str
    begin: int
    end: int
    marks: tuple[Mark, ...] = ()


def segments_of(text: str, parts: Sequence[Part], kind: Kind) -> list[Segment]:
    """What has no letters needs no translation. Tags around the whole, and white space, are left where they are."""
    found: list[Segment] = []
    for wall, run in groupby(parts, key=lambda part: part.kind == "wall"):
        if not wall:
            reading = _Reading(text, kind)
            for part in run:
                reading.take(part)
            found += reading.segment()
    return found


@dataclass
class _Reading:
    """Collects the text of what stands between two walls."""

    input: str
    kind: Kind
    words: list[str] = field(default_factory=list)  # joined, the text
    length: int = 0
    space: bool = False  # whether white space came behind the text
    begin: int = 0  # of what is seen of it, in the input
    end: int = 0
    marks: list[Mark] = field(default_factory=list)

    def take(self, part: Part) -> None:
        if part.kind in ("open", "close", "atom"):
            self.marks.append(Mark(part.kind, self.length, part.begin, part.end, part.element))
            return
        for piece in read(self.input, part.begin, part.end, self.kind):
            if piece.text is None:
                self.marks.append(Mark("atom", self.length, piece.begin, piece.end))
            elif piece.text.isspace():
                self.space = True
            else:
                self._say(piece.text, piece.begin, piece.end)

    def segment(self) -> Iterator[Segment]:
        text = "".join(self.words)
        if not any(character.isalpha() for character in text):
            return
        marks = _without_empty(self.marks)
        closed = {mark.element: mark.at for mark in marks if mark.kind == "close"}
        opened = {mark.element: mark.at for mark in marks if mark.kind == "open"}
        first, last, begin, end = 0, len(marks), self.begin, self.end
        while first < last and marks[first].at == 0:
            if marks[first].kind == "open" and closed[marks[first].element] < self.length:
                begin = marks[first].begin
                break
            first += 1
        while first < last and marks[last - 1].at == self.length:
            if marks[last - 1].kind == "close" and opened[marks[last - 1].element] > 0:
                end = marks[last - 1].end
                break
            last -= 1
        yield Segment(text, begin, end, tuple(marks[first:last]))

    def _say(self, text: str, begin: int, end: int) -> None:
        words = text.split()
        said = " ".join(words)
        if self.length and (self.space or text[0].isspace()):
            said = f" {said}"
        if not self.length:
            self.begin = begin + text.index(words[0]) if end - begin == len(text) else begin
        self.end = end - (len(text) - len(text.rstrip())) if end - begin == len(text) else end
        self.words.append(said)
        self.length += len(said)
        self.space = text[-1].isspace()


def _without_empty(marks: Sequence[Mark]) -> list[Mark]:
    """An element around no text is one thing, with all that is in it."""
    closes = {mark.element: place for place, mark in enumerate(marks) if mark.kind == "close"}
    kept: list[Mark] = []
    place = 0
    while place < len(marks):
        mark = marks[place]
        if mark.kind == "open" and marks[closes[mark.element]].at == mark.at:
            place = closes[mark.element]
            mark = Mark("atom", mark.at, mark.begin, marks[place].end)
        kept.append(mark)
        place += 1
    return kept


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
