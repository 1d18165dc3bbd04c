"""Gold alignments: links that people or a grammar made, and which word each token of a model belongs to."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from attendo.errors import DataError, MessagePart
from attendo.explore.alignment import Link
from attendo.text import UNK, Tokenizer
from attendo.text.tokenizer import UNKNOWN_TEXT

_LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


@dataclass(frozen=True)
class Gold:
    """The links of one pair. They are between these words, or between the model's own tokens where there are none."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()
    source_words: tuple[str, ...] | None = None
    target_words: tuple[str, ...] | None = None


def parse_links(line: str, place: MessagePart | str) -> tuple[frozenset[Link], frozenset[Link]]:
    """Sure and possible ones of a line such as `0-0 1-2 3?4`: source, target; a link with ? or p is possible only."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in line.split():
        found = _LINK.fullmatch(text)
        if found is None:
            raise DataError("invalid_gold_link", place=place, text=text)
        (sure if found[2] == "-" else possible).add((int(found[1]), int(found[3])))
    return frozenset(sure), frozenset(possible)


def check_inside(gold: Gold, sources: int, targets: int, place: MessagePart | str) -> None:
    """Links to words or tokens that are not there are a `DataError`."""
    unit = "tokens" if gold.source_words is None else "words"
    for source, target in sorted(gold.sure | gold.possible):
        if source >= sources or target >= targets:
            way_out = (
                "give links between words (--links words)"
                if unit == "tokens"
                else "count from 0, or say --links tokens where the links are between the model's tokens"
            )
            raise DataError(
                "gold_link_outside_sentence",
                place=place,
                source=source,
                target=target,
                sources=sources,
                targets=targets,
                unit=unit,
                fix=way_out,
            )


def words_of_tokens(tokenizer: Tokenizer, text: str, words: Sequence[str], place: MessagePart | str) -> list[int]:
    """Of each token of the text, the number of the word that its last character belongs to."""
    ids = tokenizer.encode(text)
    unknown = iter(tokenizer.unknown(text))
    ends, extra = [], 0
    for number, token in enumerate(ids, start=1):
        extra += _length(next(unknown, UNKNOWN_TEXT)) - len(UNKNOWN_TEXT) if token == UNK else 0
        ends.append(_length(tokenizer.decode(ids[:number])) + extra)
    starts = list(accumulate((_length(word) for word in words), initial=0))
    if ids and ends[-1] != starts[-1]:
        raise DataError(
            "token_word_length_mismatch", place=place, token_characters=ends[-1], word_characters=starts[-1]
        )
    return [max(0, bisect_right(starts, max(0, end - 1)) - 1) for end in ends]


def _length(text: str) -> int:
    """Without white space, which separates words and belongs to none."""
    return sum(not letter.isspace() for letter in text)
