"""Gold word alignments: parsing, alignment error rate (Och and Ney 2003), mapping of tokens to words."""

import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from attendo.errors import DataError, MessagePart
from attendo.text import UNK, Tokenizer
from attendo.text.tokenizer import UNKNOWN_TEXT

Link = tuple[int, int]  # source, target; from 0
_LINK = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)


@dataclass(frozen=True)
class LinkCounts:
    """Counts of predicted and gold links: A predicted, S sure, P possible. P includes S."""

    found: int = 0  # |A|
    sure: int = 0  # |S|
    found_sure: int = 0  # |A ∩ S|
    found_possible: int = 0  # |A ∩ P|

    @staticmethod
    def from_links(found: Collection[Link], sure: Collection[Link], possible: Collection[Link] = ()) -> "LinkCounts":
        """Count the links of one sentence. `possible` need not repeat the sure links."""
        predicted, certain = set(found), set(sure)
        allowed = certain | set(possible)
        return LinkCounts(len(predicted), len(certain), len(predicted & certain), len(predicted & allowed))

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(
            self.found + other.found,
            self.sure + other.sure,
            self.found_sure + other.found_sure,
            self.found_possible + other.found_possible,
        )

    @property
    def error_rate(self) -> float | None:
        """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), from 0 to 1 (Och and Ney 2003); None without links."""
        links = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / links if links else None


@dataclass(frozen=True)
class GoldLinks:
    """Gold links of one pair, between its words, or between the model's tokens if the words are None."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()
    source_words: tuple[str, ...] | None = None
    target_words: tuple[str, ...] | None = None


def parse_links(line: str, location: MessagePart | str) -> tuple[frozenset[Link], frozenset[Link]]:
    """Return the sure and possible links of a line such as `0-0 1-2 3?4`; `?` or `p` marks a possible link."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in line.split():
        found = _LINK.fullmatch(text)
        if found is None:
            raise DataError("invalid_gold_link", place=location, text=text)
        (sure if found[2] == "-" else possible).add((int(found[1]), int(found[3])))
    return frozenset(sure), frozenset(possible)


def check_link_range(gold: GoldLinks, sources: int, targets: int, location: MessagePart | str) -> None:
    """Raise a `DataError` for a link to a word or token beyond the sentence."""
    unit = "tokens" if gold.source_words is None else "words"
    for source, target in sorted(gold.sure | gold.possible):
        if source >= sources or target >= targets:
            hint = (
                "give links between words (--links words)"
                if unit == "tokens"
                else "count from 0, or use --links tokens if the links are between the model's tokens"
            )
            raise DataError(
                "gold_link_outside_sentence",
                place=location,
                source=source,
                target=target,
                sources=sources,
                targets=targets,
                unit=unit,
                fix=hint,
            )


def map_tokens_to_words(
    tokenizer: Tokenizer, text: str, words: Sequence[str], location: MessagePart | str
) -> list[int]:
    """Return for each token the index of the word that contains its last character."""
    ids = tokenizer.encode(text)
    unknown = iter(tokenizer.unknown(text))
    ends, extra = [], 0
    for number, token in enumerate(ids, start=1):
        extra += _count_non_space(next(unknown, UNKNOWN_TEXT)) - len(UNKNOWN_TEXT) if token == UNK else 0
        ends.append(_count_non_space(tokenizer.decode(ids[:number])) + extra)
    starts = list(accumulate((_count_non_space(word) for word in words), initial=0))
    if ids and ends[-1] != starts[-1]:
        raise DataError(
            "token_word_length_mismatch", place=location, token_characters=ends[-1], word_characters=starts[-1]
        )
    return [max(0, bisect_right(starts, max(0, end - 1)) - 1) for end in ends]


def _count_non_space(text: str) -> int:
    """Count the characters without white space."""
    return sum(not letter.isspace() for letter in text)
