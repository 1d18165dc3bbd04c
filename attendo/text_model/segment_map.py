"""Which part of an output was generated for which part of its source, for texts that are split into sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Span = tuple[int, int]


@dataclass(frozen=True)
class TextSegment:
    """A sentence of the source and its output: the first character of each, and the one after the last.

    White space belongs to the segment before it. So the segments cover both texts without gaps.
    """

    source_span: Span
    target_span: Span


def map_segments(source: str, sentences: Sequence[str], target: str, outputs: Sequence[str]) -> tuple[TextSegment, ...]:
    """Return one segment for each sentence. An empty source has none.

    The sentences and the source have the same characters in the same order, except white space. So have the outputs
    and the target.
    """
    if not sentences:
        return (TextSegment((0, len(source)), (0, len(target))),) if source or target else ()
    spans = zip(_find_spans(source, sentences), _find_spans(target, outputs), strict=True)
    return tuple(TextSegment(*each) for each in spans)


def _find_spans(text: str, parts: Sequence[str]) -> list[Span]:
    places = [index for index, character in enumerate(text) if not character.isspace()]
    begins, count = [0], 0
    for part in parts[:-1]:
        count += sum(not character.isspace() for character in part)
        begins.append(places[count] if count < len(places) else len(text))
    return list(pairwise([*begins, len(text)]))
