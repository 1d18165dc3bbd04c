"""A text with tags: its parts to translate, and the same text with their translations."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import get_args

from attendo.errors import UsageError
from attendo.text.markup.elements import Outline, parts_of
from attendo.text.markup.scanning import Kind
from attendo.text.markup.segments import Segment, segments_of
from attendo.text.markup.writing import CharacterLinks, written


class Markup:
    """Anything may be given, well-formed or not: it is read in time proportional to its length, and nothing is lost.

    Each tag, comment and placeholder of the input is in the output once; if the input was well-formed, so is the
    output. What is `ignored` (names of elements), `translate="no"`, code or a script, is kept as it is.
    """

    def __init__(self, text: str, kind: Kind, ignored: Collection[str] = (), outline: Outline | None = None) -> None:
        if kind not in get_args(Kind):
            raise UsageError("markup_kind_unknown", kind=kind, known=" or ".join(get_args(Kind)))
        self._text, self._kind = text, kind
        self._ignored, self._outline = frozenset(ignored), outline or Outline()

    @property
    def texts(self) -> list[str]:
        """What is to be translated, in order: without tags, without placeholders, with single spaces."""
        return [segment.text for segment in self._segments]

    def translated(self, translations: Sequence[str], links: Sequence[CharacterLinks | None] | None = None) -> str:
        """The input with a translation of each text. One that is as its text leaves its part of the input as it was.

        `links` are those of each translation, as `links_of` tells them: with them tags follow their words. Without them
        (None for all or for one) they keep their order, at places in proportion.
        """
        if len(translations) != len(self._segments):
            raise UsageError("translation_count_mismatch", count=len(translations), expected=len(self._segments))
        each_links = [None] * len(translations) if links is None else links
        pieces: list[str] = []
        at = 0
        for segment, translation, known in zip(self._segments, translations, each_links, strict=True):
            pieces += [self._text[at : segment.begin], written(self._text, segment, translation, known)]
            at = segment.end
        return "".join([*pieces, self._text[at:]])

    @cached_property
    def _segments(self) -> list[Segment]:
        return segments_of(self._text, parts_of(self._text, self._kind, self._ignored, self._outline), self._kind)
