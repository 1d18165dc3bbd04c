"""Sentences and paragraphs to translate, each with the places of the tags in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, NamedTuple

from attendo.text.markup.elements import Part
from attendo.text.markup.reading import read
from attendo.text.markup.scanning import Kind


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
