"""ROUGE of two lines (Lin 2004): which share of their words, pairs of words or word order they have in common."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from attendo.metrics.scripts import SCRIPTS_WITHOUT_SPACES, script_of


def tokens(text: str) -> list[str]:
    """Words of letters and digits, lower-cased; in scripts without spaces every character.

    On ASCII these are the tokens of the package rouge-score. It takes every other letter for a space, so that a Chinese
    line has no tokens, and a word with an umlaut is two.
    """
    return "".join(map(_set_apart, text.lower())).split()


def rouge_1(output: Sequence[str], reference: Sequence[str]) -> float:
    return _f1((Counter(output) & Counter(reference)).total(), len(output), len(reference))


def rouge_2(output: Sequence[str], reference: Sequence[str]) -> float:
    shared = Counter(pairwise(output)) & Counter(pairwise(reference))
    return _f1(shared.total(), max(len(output) - 1, 0), max(len(reference) - 1, 0))


def rouge_l(output: Sequence[str], reference: Sequence[str]) -> float:
    return _f1(longest_common_subsequence(output, reference), len(output), len(reference))


def longest_common_subsequence(output: Sequence[str], reference: Sequence[str]) -> int:
    """The most words that both have in the same order, with others between them or not.

    A row of the table of lengths rises by at most one a word. One whole number holds where it does not, one bit a word,
    and a sum carries each match to the rise it moves (Hyyrö 2004).
    """
    places: dict[str, int] = {}
    for n, word in enumerate(output):
        places[word] = places.get(word, 0) | 1 << n
    every = (1 << len(output)) - 1
    level = every
    for word in reference:
        matches = level & places.get(word, 0)
        level = ((level + matches) | (level - matches)) & every
    return len(output) - level.bit_count()


def _f1(shared: int, output: int, reference: int) -> float:
    """2PR / (P + R) with precision P = shared / output and recall R = shared / reference."""
    return 2 * shared / (output + reference) if shared else 0.0


@cache
def _set_apart(character: str) -> str:
    category = unicodedata.category(character)
    part_of_word = category[0] == "L" or category in ("Nd", "Mn", "Mc")
    # A selector asks for a picture, in colour or not; it stands behind emoji, which are no words.
    if not part_of_word or "VARIATION SELECTOR" in unicodedata.name(character, ""):
        return " "
    return f" {character} " if script_of(character) in SCRIPTS_WITHOUT_SPACES else character
