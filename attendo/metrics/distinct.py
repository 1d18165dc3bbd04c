"""How varied outputs are (Li et al. 2016): the share of different n-grams among all that they hold.

What a line adds depends on the lines beside it. So no sums of lines lead to it, and lines cannot be drawn by chance:
one that is drawn twice adds nothing new, and every sample would be less varied than the text.
"""

from collections.abc import Callable, Sequence

from attendo.metrics.measure import Measured, Score
from attendo.metrics.rouge import tokens
from attendo.metrics.version import VERSION

DISTINCT = {"distinct1": 1, "distinct2": 2}


def distinct(name: str, outputs: Sequence[str]) -> Measured:
    """In percent; n-grams are of the words of ROUGE and do not reach from one line into the next."""
    length = DISTINCT[name]
    grams = [_grams(tokens(output), length) for output in outputs]
    return Measured(len(outputs), _scorer(name, grams))


def _scorer(name: str, grams: Sequence[Sequence[tuple[str, ...]]]) -> Callable[[Sequence[int]], Score]:
    def score_of(lines: Sequence[int]) -> Score:
        found = [gram for number in lines for gram in grams[number]]
        value = 100 * len(set(found)) / len(found) if found else 0.0
        return Score(name, value, f"{name}|case:lc|tok:word+char|{VERSION}", True)

    return score_of


def _grams(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[begin:] for begin in range(length)), strict=False))
