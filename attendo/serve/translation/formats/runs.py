"""Paragraphs of runs, as Word, PowerPoint and Excel have them: each run is a text with its formatting.

The texts of a paragraph between two breaks are one segment. Texts that differ in formatting are elements `<g>` of the
segment, so that formatting follows the words in the translation.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from lxml import etree

from attendo.serve.translation.formats.draft import Segment
from attendo.serve.translation.formats.xml_parts import local_name

_SPACE = "{http://www.w3.org/XML/1998/namespace}space"


class RunTags(NamedTuple):
    """Names of the elements. A break ends a segment."""

    paragraph: str
    text: str
    run: str
    formatting: str
    breaks: Sequence[str]


@dataclass
class _Group:
    """Adjacent texts of equal formatting."""

    texts: list[Any] = field(default_factory=list)
    formatting: Any = None

    @property
    def text(self) -> str:
        return "".join(each.text or "" for each in self.texts)


class Paragraph:
    """Texts between two breaks of a paragraph."""

    def __init__(self, texts: Sequence[Any], tags: RunTags) -> None:
        self._tags = tags
        keyed = groupby(texts, lambda text: (_find_place(text), _write_formatting(_find_formatting(text, tags))))
        self._groups = [_Group(own, _find_formatting(own[0], tags)) for own in (list(each) for _, each in keyed)]

    @property
    def segment(self) -> Segment:
        if len(self._groups) == 1:
            return Segment(self._groups[0].text, "text")
        texts = (escape(each.text, quote=False) for each in self._groups)
        return Segment("".join(f'<g id="{number}">{text}</g>' for number, text in enumerate(texts)), "xml")

    def write(self, translation: str) -> None:
        """Write a translation into the texts. Formatting moves with the words if all runs are side by side."""
        if len(self._groups) == 1:
            _set_texts(self._groups[0], translation)
            return
        pieces = [*_find_pieces(translation, len(self._groups))]
        order = [number for number, _ in pieces]
        if order == sorted(set(order)):
            by_group = dict(pieces)
            for number, group in enumerate(self._groups):
                _set_texts(group, by_group.get(number, ""))
        elif len(pieces) <= len(self._groups) and self._are_side_by_side():
            self._permute(pieces)
        else:
            for number, group in enumerate(self._groups):
                _set_texts(group, "".join(text for _, text in pieces) if number == 0 else "")

    def _are_side_by_side(self) -> bool:
        first, *others = [_find_place(each.texts[0]) for each in self._groups]
        return all(each is first for each in others)

    def _permute(self, pieces: Sequence[tuple[int, str]]) -> None:
        """Write the pieces in their order, each with the formatting of its group."""
        formats = [copy.deepcopy(each.formatting) for each in self._groups]
        for group, (number, text) in zip(self._groups, pieces, strict=False):
            for each in group.texts:
                _set_formatting(each, copy.deepcopy(formats[number]), self._tags)
            _set_texts(group, text)
        for group in self._groups[len(pieces) :]:
            _set_texts(group, "")


def find_paragraphs(tree: Any, tags: RunTags) -> Iterator[Paragraph]:
    """Yield the texts of each paragraph between its breaks, if they have a letter."""
    for element in tree.iter():
        if local_name(element) == tags.paragraph:
            for texts in _split_texts(element, tags):
                if any(character.isalpha() for text in texts for character in text.text or ""):
                    yield Paragraph(texts, tags)


def _split_texts(paragraph: Any, tags: RunTags) -> Iterator[list[Any]]:
    """Yield lists of text elements. Those of a paragraph inside this one, as in a text box, are not among them."""
    found: list[Any] = []
    for element in _walk(paragraph, tags):
        if local_name(element) == tags.text:
            found.append(element)
        elif local_name(element) in tags.breaks:
            yield found
            found = []
    yield found


def _walk(element: Any, tags: RunTags) -> Iterator[Any]:
    for child in element:
        if local_name(child) == tags.paragraph:
            continue
        yield child
        if local_name(child) not in ("fld", "rPh", tags.text):  # numbers of slides, and how a cell is pronounced
            yield from _walk(child, tags)


def _find_place(text: Any) -> Any:
    """Return the element whose child the run is: the paragraph, or a link in it."""
    parent = text.getparent()
    return parent.getparent() if local_name(parent) == "r" else parent


def _find_formatting(text: Any, tags: RunTags) -> Any:
    return next((each for each in text.getparent() if local_name(each) == tags.formatting), None)


def _write_formatting(formatting: Any) -> bytes:
    written: bytes = b"" if formatting is None else etree.tostring(formatting, with_tail=False, method="c14n")
    return written


def _set_formatting(text: Any, formatting: Any, tags: RunTags) -> None:
    run, old = text.getparent(), _find_formatting(text, tags)
    if old is not None:
        run.remove(old)
    if formatting is not None:
        run.insert(0, formatting)


def _set_texts(group: _Group, text: str) -> None:
    first, *others = group.texts
    first.text = text
    for each in others:
        each.text = ""
    if text != text.strip() and local_name(first) == "t" and "wordprocessingml" in str(first.tag):
        first.set(_SPACE, "preserve")


def _find_pieces(translation: str, count: int) -> Iterator[tuple[int, str]]:
    """Yield the group and the text of each piece. Text outside of elements belongs to the piece before it."""
    try:
        root = etree.fromstring(f"<segment>{translation}</segment>")
    except etree.XMLSyntaxError:
        yield 0, re.sub(r"<[^>]*>", "", translation)
        return
    number, text = 0, root.text or ""
    for element in root:
        own = int(element.get("id", "0"))
        if own != number and text:
            yield number, text
            text = ""
        number = min(own, count - 1)
        text += "".join(element.itertext()) + (element.tail or "")
    if text:
        yield number, text
