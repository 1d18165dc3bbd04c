"""Bilingual phrases with the links between their words, and sentence patterns: a template per language."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal

Agreement = Literal["I", "he", "they"]

MARKS = "¹²³⁴"
PARTICLES = frozenset(("的", "了", "吗"))  # without an English counterpart, never linked
_INFLECTED: dict[str, dict[Agreement, str]] = {
    "be": {"I": "am", "he": "is", "they": "are"},
    "was": {"I": "was", "he": "was", "they": "were"},
    "do": {"I": "do", "he": "does", "they": "do"},
    "have": {"I": "have", "he": "has", "they": "have"},
}


@dataclass(frozen=True, slots=True)
class Phrase:
    """`links` are (English, Chinese) word indices. `combinations` name the words that this phrase joins."""

    english: tuple[str, ...]
    chinese: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    head: str = ""
    agreement: Agreement = "he"
    combinations: tuple[str, ...] = ()


Parts = dict[str, Phrase]


def phrase(english: str, chinese: str, head: str = "", agreement: Agreement = "he") -> Phrase:
    """Make a lexicon phrase, linked by superscripts, else word by word if both have equal length, else all to all."""
    if MARKS[0] in english:
        marked = weave(english, chinese)
        return replace(marked, head=head or " ".join(marked.english), agreement=agreement)
    left, right = tuple(english.split()), tuple(chinese.split())
    linked = [index for index, word in enumerate(right) if word not in PARTICLES]
    if len(left) == len(linked):
        links = tuple(enumerate(linked))
    else:
        links = tuple((i, j) for i in range(len(left)) for j in linked)
    return Phrase(left, right, links, head or english, agreement)


def name_combination(*heads: str) -> str:
    """Return the name under which a combination of words is held out, independent of their order."""
    return "+".join(sorted(heads))


def weave(english: str, chinese: str, *, joins: str = "", head: str = "", **parts: Phrase) -> Phrase:
    """Combine several phrases into one, each language in its own order.

    >>> weave("a¹ {how} {what}", "一¹ 本@what {how} {what}", how=phrase("new", "新"), what=phrase("book", "书")).links
    ((0, 0), (1, 2), (2, 1), (2, 3))

    A name in braces is a part, any other word is literal. Words with the same superscript are linked. 本@what is linked
    to the last English word of that part, the noun of this measure word. be:who is am, is or are, as `who` requires.
    `joins="eat+what"` records the combination of the heads of these parts, if both have one. `head` names the part
    whose head becomes the head of the phrase.
    """
    left, starts, english_marks = _lay_out(english, {name: part.english for name, part in parts.items()}, parts)
    right, ends, chinese_marks = _lay_out(chinese, {name: part.chinese for name, part in parts.items()}, parts)
    links = [(i, j) for mark, indices in english_marks.items() for i in indices for j in chinese_marks.get(mark, ())]
    nouns = {f"@{name}": starts[name] + len(part.english) - 1 for name, part in parts.items()}
    links += [(nouns[mark], j) for mark, indices in chinese_marks.items() if mark in nouns for j in indices]
    combinations: list[str] = []
    for name, part in parts.items():
        links += [(starts[name] + i, ends[name] + j) for i, j in part.links]
        combinations += part.combinations
    for join in joins.split():
        heads = [parts[name].head for name in join.split("+")]
        combinations += [name_combination(*heads)] if all(heads) else []
    links.sort()
    main = parts[head] if head else Phrase((), (), ())
    return Phrase(tuple(left), tuple(right), tuple(links), main.head, main.agreement, tuple(combinations))


@cache
def _parse_template(template: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return (name, "{", ()) for each part and (word, part that it agrees with, its marks) for each literal word."""
    items: list[tuple[str, str, tuple[str, ...]]] = []
    for item in template.split():
        if slot := re.fullmatch(r"\{(\w+)\}", item):
            items.append((slot[1], "{", ()))
        else:
            rest, at, noun = item.partition("@")
            text = rest.rstrip(MARKS)
            word, _, agrees_with = text.partition(":")
            items.append((word, agrees_with, (*rest[len(text) :], *([at + noun] if at else []))))
    return tuple(items)


def _lay_out(
    template: str, words_by_part: dict[str, tuple[str, ...]], parts: dict[str, Phrase]
) -> tuple[list[str], dict[str, int], dict[str, list[int]]]:
    """Return the words of one side, the start of each part, and the positions of each mark."""
    words: list[str] = []
    starts: dict[str, int] = {}
    marks: dict[str, list[int]] = {}
    for text, agrees_with, own_marks in _parse_template(template):
        if agrees_with == "{":
            starts[text] = len(words)
            words += words_by_part[text]
            continue
        for mark in own_marks:
            marks.setdefault(mark, []).append(len(words))
        words.append(_INFLECTED[text][parts[agrees_with].agreement] if agrees_with else text)
    return words, starts, marks


@dataclass(frozen=True)
class Pattern:
    """Makes sentences of one pattern. `joins` names the parts whose combination can be held out."""

    name: str
    english: str
    chinese: str
    joins: str
    draw: Callable[[Random], Parts]

    def __call__(self, dice: Random) -> Phrase:
        return weave(self.english, self.chinese, joins=self.joins, head="", **self.draw(dice))


def pattern(name: str, english: str, chinese: str, joins: str) -> Callable[[Callable[[Random], Parts]], Pattern]:
    """Make a pattern of the function that draws its parts. The docstring of that function is an example."""
    return lambda draw: Pattern(name, english, chinese, joins, draw)
