"""Segments to translate with the positions of their inline tags, and word boundaries."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from attendo.text.markup.parser import MarkupFormat, MarkupSpan, split_text_runs

# Prefixes of the Unicode names of letters in scripts without spaces between words.
_SCRIPTS_WITHOUT_SPACES = ("CJK ", "HIRAGANA ", "KATAKANA", "IDEOGRAPHIC ", "THAI ", "LAO ", "MYANMAR ", "KHMER ")


class InlineTag(NamedTuple):
    """A tag, or an atom that is kept unchanged, at a position in a text."""

    type: Literal["open", "close", "atom"]
    at: int  # characters of the text before it
    begin: int  # in the input
    end: int
    element: int = -1  # the two tags of an element have the same number


@dataclass(frozen=True)
class MarkupSegment:
    """A text to translate, without tags and with single spaces, and its range in the input."""

    text: str
    begin: int
    end: int
    tags: tuple[InlineTag, ...] = ()


def build_segments(text: str, spans: Sequence[MarkupSpan], markup_format: MarkupFormat) -> list[MarkupSegment]:
    """Build the segments between walls. A text without letters is not translated.

    Tags around a whole segment, and white space, stay in place.
    """
    found: list[MarkupSegment] = []
    for is_wall, run in groupby(spans, key=lambda part: part.type == "wall"):
        if not is_wall:
            builder = _SegmentBuilder(text, markup_format)
            for part in run:
                builder.add(part)
            found += builder.build()
    return found


@dataclass
class _SegmentBuilder:
    """Collects the text between two walls."""

    input: str
    markup_format: MarkupFormat
    words: list[str] = field(default_factory=list)  # joined, they are the text
    length: int = 0
    space: bool = False  # whether white space follows the text
    begin: int = 0  # start of the visible text in the input
    end: int = 0
    tags: list[InlineTag] = field(default_factory=list)

    def add(self, span: MarkupSpan) -> None:
        if span.type in ("open", "close", "atom"):
            self.tags.append(InlineTag(span.type, self.length, span.begin, span.end, span.element))
            return
        for piece in split_text_runs(self.input, span.begin, span.end, self.markup_format):
            if piece.text is None:
                self.tags.append(InlineTag("atom", self.length, piece.begin, piece.end))
            elif piece.text.isspace():
                self.space = True
            else:
                self._add_text(piece.text, piece.begin, piece.end)

    def build(self) -> Iterator[MarkupSegment]:
        text = "".join(self.words)
        if not any(character.isalpha() for character in text):
            return
        marks = _collapse_empty(self.tags)
        ends = {mark.element: mark.at for mark in marks if mark.type == "close"}
        starts = {mark.element: mark.at for mark in marks if mark.type == "open"}
        first, last, begin, end = 0, len(marks), self.begin, self.end
        while first < last and marks[first].at == 0:
            if marks[first].type == "open" and ends[marks[first].element] < self.length:
                begin = marks[first].begin
                break
            first += 1
        while first < last and marks[last - 1].at == self.length:
            if marks[last - 1].type == "close" and starts[marks[last - 1].element] > 0:
                end = marks[last - 1].end
                break
            last -= 1
        yield MarkupSegment(text, begin, end, tuple(marks[first:last]))

    def _add_text(self, text: str, begin: int, end: int) -> None:
        words = text.split()
        joined = " ".join(words)
        if self.length and (self.space or text[0].isspace()):
            joined = f" {joined}"
        if not self.length:
            self.begin = begin + text.index(words[0]) if end - begin == len(text) else begin
        self.end = end - (len(text) - len(text.rstrip())) if end - begin == len(text) else end
        self.words.append(joined)
        self.length += len(joined)
        self.space = text[-1].isspace()


def _collapse_empty(tags: Sequence[InlineTag]) -> list[InlineTag]:
    """Merge an element without text, and everything in it, into one atom."""
    closes = {mark.element: index for index, mark in enumerate(tags) if mark.type == "close"}
    collapsed: list[InlineTag] = []
    index = 0
    while index < len(tags):
        mark = tags[index]
        if mark.type == "open" and tags[closes[mark.element]].at == mark.at:
            index = closes[mark.element]
            mark = InlineTag("atom", mark.at, mark.begin, tags[index].end)
        collapsed.append(mark)
        index += 1
    return collapsed


@dataclass(frozen=True)
class WordSpans:
    """Start and end of each word in a text."""

    text: str
    begins: Sequence[int]
    ends: Sequence[int]

    @staticmethod
    def from_text(text: str) -> "WordSpans":
        begins: list[int] = []
        ends: list[int] = []
        in_word = False
        for position, character in enumerate(text):
            kind = _character_type(character)
            goes_on = (kind == "mark" and bool(ends) and ends[-1] == position) or (kind == "letter" and in_word)
            if goes_on:
                ends[-1] = position + 1
            elif kind != "space":
                begins.append(position)
                ends.append(position + 1)
            in_word = kind == "letter" or (kind == "mark" and in_word)
        return WordSpans(text, begins, ends)

    def __len__(self) -> int:
        return len(self.begins)

    def count_before(self, at: int) -> int:
        """Return the number of words that begin before character `at`."""
        return bisect_left(self.begins, at)

    def index_at(self, character: int) -> int:
        """Return the index of the word that contains or precedes this character."""
        return max(0, bisect_right(self.begins, character) - 1)

    def find_inner_cuts(self, offsets: Iterable[int]) -> dict[str, list[int]]:
        """Return the words that contain one of the offsets, with the offsets inside them."""
        offsets_by_word: dict[int, set[int]] = {}
        for at in offsets:
            number = self.index_at(at)
            if self.begins and self.begins[number] < at < self.ends[number]:
                offsets_by_word.setdefault(number, set()).add(at - self.begins[number])
        found: dict[str, set[int]] = {}
        for number, cut in offsets_by_word.items():
            found.setdefault(self.text[self.begins[number] : self.ends[number]], set()).update(cut)
        return {word: sorted(cut) for word, cut in found.items()}

    def split_at(self, cuts: Mapping[str, Sequence[int]]) -> "WordSpans":
        """Split these words, as for the subscript 2 of H2O, which is the same in any language."""
        if not cuts:
            return self
        begins: list[int] = []
        ends: list[int] = []
        for begin, end in zip(self.begins, self.ends, strict=True):
            positions = [begin + cut for cut in cuts.get(self.text[begin:end], ())]
            begins += [begin, *positions]
            ends += [*positions, end]
        return WordSpans(self.text, begins, ends)


def needs_space_after(character: str) -> bool:
    """Whether a space separates this character from the next word. False for an empty string."""
    if not character or _is_unspaced(character):
        return False
    return unicodedata.category(character) not in ("Ps", "Pi")


def needs_space_before(character: str) -> bool:
    return bool(character) and character.isalnum() and not _is_unspaced(character)


@lru_cache(maxsize=8192)
def _character_type(character: str) -> Literal["letter", "mark", "space", "alone"]:
    if character.isspace():
        return "space"
    if unicodedata.category(character)[0] == "M" or character in "\u200c\u200d":
        return "mark"
    return "letter" if character.isalnum() and not _is_unspaced(character) else "alone"


@lru_cache(maxsize=8192)
def _is_unspaced(character: str) -> bool:
    """Whether no space is written around it. Wide punctuation needs none. Hangul is wide but has spaces."""
    if unicodedata.name(character, "").startswith(_SCRIPTS_WITHOUT_SPACES):
        return True
    return not character.isalnum() and unicodedata.east_asian_width(character) in ("W", "F")
