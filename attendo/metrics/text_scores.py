"""Metrics without dependencies: exact match, error rates, ROUGE and distinct-n.

distinct-n is not a function of sums over lines, so it is not a `Metric`. It cannot be bootstrapped: a line sampled
twice adds no new n-gram, so every sample would be less varied than the text.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

from attendo.errors import UsageError
from attendo.metrics.measure import (
    VERSION_SIGNATURE,
    Metric,
    MetricValues,
    ReferenceSets,
    Score,
    Statistics,
    flatten_references,
    reference_count_signature,
)
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, is_unspaced, main_script

DISTINCT_METRICS = {"distinct1": 1, "distinct2": 2}


def split_rouge_tokens(text: str) -> list[str]:
    """Split into lower-cased words of letters and digits. In scripts without spaces every character is a token.

    On ASCII the tokens equal those of the package rouge-score. That package treats all other letters as spaces, so a
    Chinese line has no tokens and a word with an umlaut becomes two.
    """
    return "".join(map(_separate_character, text.lower())).split()


def rouge_1(output: Sequence[str], reference: Sequence[str]) -> float:
    return _f1((Counter(output) & Counter(reference)).total(), len(output), len(reference))


def rouge_2(output: Sequence[str], reference: Sequence[str]) -> float:
    shared = Counter(pairwise(output)) & Counter(pairwise(reference))
    return _f1(shared.total(), max(len(output) - 1, 0), max(len(reference) - 1, 0))


def rouge_l(output: Sequence[str], reference: Sequence[str]) -> float:
    return _f1(longest_common_subsequence(output, reference), len(output), len(reference))


def longest_common_subsequence(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the length of the longest common subsequence in words.

    A row of the length table rises by at most 1 per word. One integer has a bit per word, set if it does not rise.
    An addition carries each match to the rise that it moves (Hyyrö 2004).
    """
    positions = _word_positions(output)
    every = (1 << len(output)) - 1
    level = every
    for word in reference:
        matches = level & positions.get(word, 0)
        level = ((level + matches) | (level - matches)) & every
    return len(output) - level.bit_count()


def _word_positions(words: Sequence[str]) -> dict[str, int]:
    """Return the positions of each word as an integer with one bit per position."""
    positions: dict[str, int] = {}
    for n, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << n
    return positions


def _f1(shared: int, output: int, reference: int) -> float:
    """2PR / (P + R) with precision P = shared / output and recall R = shared / reference."""
    return 2 * shared / (output + reference) if shared else 0.0


@cache
def _separate_character(character: str) -> str:
    category = unicodedata.category(character)
    part_of_word = category[0] == "L" or category in ("Nd", "Mn", "Mc")
    # Variation selectors follow emoji and set how they are displayed. Emoji are not words.
    if not part_of_word or "VARIATION SELECTOR" in unicodedata.name(character, ""):
        return " "
    return f" {character} " if is_unspaced(character) else character


_ROUGE = {"rouge1": rouge_1, "rouge2": rouge_2, "rougeL": rouge_l}


def exact_match(references: ReferenceSets) -> Metric:
    """Percentage of lines equal to a reference, ignoring surrounding white space.

    In scripts without spaces, such as Chinese, all white space is ignored.
    """
    return _line_match_metric("exact_match", "exact", references, matching=True)


def error_rate(references: ReferenceSets) -> Metric:
    """Percentage of lines that equal no reference: 100 - exact match."""
    return _line_match_metric("error_rate", "error", references, matching=False)


def word_error_rate(references: ReferenceSets) -> Metric:
    """Insertions, deletions and substitutions per 100 reference words."""
    characters = main_script(flatten_references(references)) in SCRIPTS_WITHOUT_SPACES
    expected = [[split_words(reference, characters) for reference in line] for line in references]
    if not any(any(line) for line in expected):
        raise UsageError("references_without_words", count=len(references))

    def statistics(outputs: Sequence[str]) -> Statistics:
        pairs = zip(outputs, expected, strict=True)
        return [_nearest_reference(split_words(output, characters), line) for output, line in pairs]

    signature = (
        f"wer|{reference_count_signature(references)}tok:{'char' if characters else 'space'}|{VERSION_SIGNATURE}"
    )
    return Metric("word_error_rate", signature, False, _percent, statistics)


def rouge(name: str, references: ReferenceSets) -> Metric:
    """Mean ROUGE F1 of the lines in percent, with the best reference of each line."""
    expected = [[split_rouge_tokens(reference) for reference in line] for line in references]
    of_line: Callable[[Sequence[str], Sequence[str]], float] = _ROUGE[name]

    def statistics(outputs: Sequence[str]) -> Statistics:
        token_pairs = zip(map(split_rouge_tokens, outputs), expected, strict=True)
        return [(max(of_line(output, each) for each in line), 1) for output, line in token_pairs]

    signature = f"{name}|{reference_count_signature(references)}f1|case:lc|stem:no|tok:word+char|{VERSION_SIGNATURE}"
    return Metric(name, signature, True, _percent, statistics)


def _line_match_metric(name: str, short: str, references: ReferenceSets, matching: bool) -> Metric:
    unspaced = main_script(flatten_references(references)) in SCRIPTS_WITHOUT_SPACES

    def clean(text: str) -> str:
        return "".join(text.split()) if unspaced else text.strip()

    expected = [set(map(clean, line)) for line in references]

    def statistics(outputs: Sequence[str]) -> Statistics:
        return [((clean(output) in line) == matching, 1) for output, line in zip(outputs, expected, strict=True)]

    return Metric(
        name,
        f"{short}|{reference_count_signature(references)}{'spaces:no' if unspaced else 'strip'}|{VERSION_SIGNATURE}",
        matching,
        _percent,
        statistics,
    )


def _nearest_reference(output: Sequence[str], line: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the errors and the length of the reference with the fewest errors per word."""
    found = [(edit_distance(output, each), len(each)) for each in line]
    return min(found, key=lambda each: (each[0] / max(each[1], 1), -each[1]))


def _percent(sums: Sequence[float]) -> float:
    """Return the percentage. Sampled lines may have no words: then any error counts as 100, as in TER."""
    part, total = sums
    return 100 * part / total if total else 100.0 * bool(part)


def split_words(text: str, by_character: bool) -> Sequence[str]:
    """Split at whitespace, or into characters for scripts without spaces."""
    return "".join(text.split()) if by_character else text.split()


def edit_distance(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the Levenshtein distance in words.

    Neighbouring cells of the distance table differ by at most 1. So a column fits into two integers with one bit per
    word: where it rises downwards, and where it falls. The next column takes a dozen integer operations at any line
    length (Myers 1999, in the form of Hyyrö 2003).
    """
    if not output:
        return len(reference)
    positions = _word_positions(output)
    every, last = (1 << len(output)) - 1, 1 << len(output) - 1
    rises, falls, distance = every, 0, len(output)
    for word in reference:
        equal = positions.get(word, 0)
        # Bit n: the diagonal step to word n is free. The addition carries a match along the rises above it.
        free = (((equal & rises) + rises) ^ rises) | equal | falls
        rises_right = falls | (every & ~(free | rises))
        falls_right = free & rises
        distance += bool(rises_right & last) - bool(falls_right & last)
        rises_right = (rises_right << 1 | 1) & every
        falls_right = (falls_right << 1) & every
        rises, falls = falls_right | (every & ~(free | rises_right)), free & rises_right
    return distance


def distinct_ngrams(name: str, outputs: Sequence[str]) -> MetricValues:
    """Percentage of distinct n-grams. Words are those of ROUGE, and n-grams do not cross lines."""
    length = DISTINCT_METRICS[name]
    lines = [split_rouge_tokens(output) for output in outputs]
    grams = [list(zip(*(words[begin:] for begin in range(length)), strict=False)) for words in lines]

    def score_lines(numbers: Sequence[int]) -> Score:
        found = [gram for number in numbers for gram in grams[number]]
        value = 100 * len(set(found)) / len(found) if found else 0.0
        return Score(name, value, f"{name}|case:lc|tok:word+char|{VERSION_SIGNATURE}", True)

    return MetricValues(len(outputs), score_lines)
