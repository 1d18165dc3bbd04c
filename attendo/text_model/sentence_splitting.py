"""Sentence segmentation of texts, and joining of their translations.

`TextModel.generate` and the server use this segmenter.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from attendo.text.scripts import is_unspaced

_WIDE_ENDS = "。！？｡"  # need no space after them
_ENDS = ".!?…؟।॥։۔"
_CLOSING = "\"'”’»)\\]）」』》】"
# Possible sentence end: wide marks end a sentence at once, the others only before white space.
_END = re.compile(rf"[{_WIDE_ENDS}{_ENDS}]+[{_CLOSING}]*")
# Abbreviations that never end a sentence.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:Mr|Mrs|Ms|Dr|Prof|St|vs|ca|bzw|Hr|Fr|Sr|Sra|Mme|Mlle|p\.ex|e\.g|i\.e|z\.B|d\.h)\.$"
)
# Abbreviations that end a sentence unless a lower-case letter or a digit follows: "No. 5", but "No. I did not."
_AMBIGUOUS_ABBREVIATION = re.compile(r"(?:^|[\s(\[\"'])(?:No|Nr|etc|usw|[^\W\d_]\.[^\W\d_])\.$")
_INITIAL = re.compile(r"(?:^|[\s(\[\"'])[^\W\d_]\.$")
_LAST_WORD_I = re.compile(r"[a-z,] I\.$")  # "my wife and I." is not an initial
_NUMBER = re.compile(r"(?:^|[\s(\[\"'])\d{1,2}\.$")
_ENUMERATION = re.compile(r"\s*\d{1,2}")
_MONTH = re.compile(
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b", re.IGNORECASE
)
_MIN_TEXTS = 20  # minimum sample size for statistics
_PERCENTILES = (50, 90, 99, 100)
_CONTEXT_CHARACTERS = 8  # long enough for any of these abbreviations and the character before it


def split_sentences(text: str) -> list[str]:
    """Return the sentences in order, without surrounding white space."""
    found: list[str] = []
    begin = 0
    for end in _END.finditer(text):
        if _is_sentence_end(text, begin, end):
            found.append(text[begin : end.end()])
            begin = end.end()
    return [each.strip() for each in (*found, text[begin:]) if each.strip()]


class Segment(NamedTuple):
    """One sentence of a text. `line_breaks` precede it and are empty within a line."""

    text: str
    line_breaks: str = ""


def split_segments(text: str) -> list[Segment]:
    """Split all lines into sentences. One without letters or digits is joined to its predecessor in the line."""
    found: list[Segment] = []
    breaks = ""
    for line in text.splitlines(keepends=True):
        first = len(found)
        for sentence in split_sentences(line):
            if len(found) > first and not (_has_words(sentence) and _has_words(found[-1].text)):
                found[-1] = found[-1]._replace(text=f"{found[-1].text} {sentence}")
            else:
                found.append(Segment(sentence, breaks if len(found) == first and found else ""))
        breaks = ("" if len(found) > first else breaks) + line[len(line.rstrip("\r\n")) :]
    return found


def join_segments(outputs: Sequence[str], line_breaks: Sequence[str]) -> str:
    """Join the outputs of segments into one text, with their line breaks."""
    lines: list[list[str]] = [[]]
    ends: list[str] = []
    for answer, before in zip(outputs, line_breaks, strict=True):
        if before:
            lines.append([])
            ends.append(before)
        lines[-1].append(answer)
    return "".join(join_texts(line) + end for line, end in zip(lines, [*ends, ""], strict=True))


def ends_as_sentence(text: str) -> bool:
    """Whether a text ends with sentence-final punctuation."""
    return re.search(rf"{_END.pattern}$", text.rstrip()) is not None


def measure_sources(texts: Sequence[str], tokens: Sequence[int] = ()) -> dict[str, Any] | None:
    """Return the fields of `TrainingSources` for texts and their token counts, or None for fewer than 20 texts."""
    texts = [text for text in texts if text.strip()]
    if len(texts) < _MIN_TEXTS:
        return None
    lengths = sorted(tokens)
    return {
        "counted": len(texts),
        "with_end": round(sum(map(ends_as_sentence, texts)) / len(texts), 4),
        "several_sentences": round(sum(len(split_segments(text)) > 1 for text in texts) / len(texts), 4),
        "tokens": {str(each): lengths[(len(lengths) - 1) * each // 100] for each in _PERCENTILES if lengths},
    }


def join_texts(texts: Sequence[str]) -> str:
    """Join with spaces, except in scripts without spaces, unless the texts are already segmented into words."""
    parts, spaced = list[str](), False
    for text in filter(None, texts):
        spaced = spaced or " " in text
        if parts and (spaced or not _needs_no_space(parts[-1][-1])):
            parts.append(" ")
            spaced = True
        parts.append(text)
    return "".join(parts)


def _is_sentence_end(text: str, begin: int, signs: re.Match[str]) -> bool:
    """`begin` is the start of the sentence that may end at `signs`."""
    if any(sign in _WIDE_ENDS for sign in signs[0]):
        return True
    rest = text[signs.end() : signs.end() + 16]
    if not rest[:1].isspace():
        return False
    before, after = text[max(begin, signs.end() - _CONTEXT_CHARACTERS) : signs.end()], rest.lstrip()
    if _ABBREVIATION.search(before):
        return False
    if _AMBIGUOUS_ABBREVIATION.search(before):
        return not (after[:1].islower() or after[:1].isdigit())
    if _NUMBER.search(before):  # "1. Open it", "am 5. Mai" and "im 3. und 4. Jahr", but "She is 5. He is 6."
        begins_with_it = _ENUMERATION.fullmatch(text, begin, signs.start())
        return not (begins_with_it or after[:1].islower() or _MONTH.match(after))
    return not _INITIAL.search(before) or _LAST_WORD_I.search(before) is not None


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _needs_no_space(character: str) -> bool:
    return character in _WIDE_ENDS or character in "，、；：」』》】）" or is_unspaced(character)
