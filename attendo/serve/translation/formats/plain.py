"""Plain text, HTML, XML and subtitles (SubRip)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from attendo.serve.http.errors import ApiError
from attendo.serve.translation.formats.draft import DecodedText, Segment, decode
from attendo.text_model.sentence_splitting import join_texts

_CUE = re.compile(r"(?m)^[ \t]*\d+:\d\d:\d\d[,.]\d+[ \t]*-->[^\r\n]*(?:\r\n|\r|\n|\Z)")
_NEXT_NUMBER = re.compile(r"(?:\r\n|\r|\n)[ \t]*\d+[ \t]*(?:\r\n|\r|\n)\Z")
_BLANK_LINE = re.compile(r"(?:\r\n|\r(?!\n)|\n)[ \t]*(?=\r|\n|\Z)|\Z")


@dataclass(frozen=True)
class WholeText:
    """A file that is one segment."""

    decoded: DecodedText

    @property
    def segments(self) -> list[Segment]:
        return [Segment(self.decoded.text, self.decoded.text_format)]

    def assemble(self, translations: Sequence[str]) -> bytes:
        (text,) = translations
        return self.decoded.encode(text)


def read_text(content: bytes) -> WholeText:
    return WholeText(decode(content, "text"))


def read_html(content: bytes) -> WholeText:
    return WholeText(decode(content, "html"))


def read_xml(content: bytes) -> WholeText:
    return WholeText(decode(content, "xml"))


@dataclass(frozen=True)
class Subtitles:
    """Numbers and times stay. Each cue is one segment, whose lines are joined; a translation has as many lines."""

    decoded: DecodedText
    spans: Sequence[tuple[int, int]]  # of the texts of the cues

    @property
    def segments(self) -> list[Segment]:
        return [Segment(join_texts(self._lines(span)), "html") for span in self.spans]

    def assemble(self, translations: Sequence[str]) -> bytes:
        text, pieces, at = self.decoded.text, list[str](), 0
        line_break = "\r\n" if "\r\n" in text else "\n"
        for span, translation in zip(self.spans, translations, strict=True):
            pieces += [text[at : span[0]], line_break.join(break_lines(translation, len(self._lines(span))))]
            at = span[1]
        return self.decoded.encode("".join([*pieces, text[at:]]))

    def _lines(self, span: tuple[int, int]) -> list[str]:
        return [line.strip() for line in self.decoded.text[slice(*span)].splitlines()]


def read_subtitles(content: bytes) -> Subtitles:
    decoded, spans = decode(content, "text"), list[tuple[int, int]]()
    cues = [*_CUE.finditer(decoded.text)]
    begins = [*(cue.start() for cue in cues), len(decoded.text)][1:]
    for cue, limit in zip(cues, begins, strict=True):  # a cue ends before the next one
        first = max(0, cue.end() - 1)
        blank = _BLANK_LINE.search(decoded.text, first, limit)
        assert blank is not None, "the pattern also matches the end"
        end = blank.start()
        if blank.end() == limit < len(decoded.text) and (number := _NEXT_NUMBER.search(decoded.text, first, limit)):
            end = number.start()  # there is no blank line between the cues
        if decoded.text[cue.end() : end].strip():
            spans.append((cue.end(), end))
    if not spans and decoded.text.strip():
        raise ApiError("document_damaged", ending="srt", detail="no line with two times and -->")
    return Subtitles(decoded, spans)


def break_lines(text: str, count: int) -> list[str]:
    """Break a text at spaces into `count` lines of similar length; fewer if it has fewer words."""
    words, lines, at, remaining = text.split(" "), list[str](), 0, len(text)
    for left in range(count, 1, -1):
        goal, begin, size = remaining / left, at, -1
        while at < len(words) and (size < 0 or size + 1 + len(words[at]) <= goal + len(words[at]) / 2):
            size += 1 + len(words[at])
            at += 1
        lines.append(" ".join(words[begin:at]))
        remaining -= size + 1
    return [line for line in (*lines, " ".join(words[at:])) if line]
