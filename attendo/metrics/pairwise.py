"""Sentence scores of many texts against many: each text is cut into n-grams once, whatever it is compared with.

chrF and BLEU of one text beside one other, the numbers of sacrebleu's `sentence_chrf` and `sentence_bleu`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attendo.metrics.sacrebleu_scores import tokenizer_name
from attendo.metrics.scores import check_metric

Matrix = NDArray[np.float64]  # a row a hypothesis, a column a reference
Counts = NDArray[np.int64]

_MAX_CHARACTER_NGRAM, _MAX_WORD_NGRAM = 6, 4  # the longest n-grams of chrF and of BLEU
_BETA_SQUARED = 4.0  # how much more recall weighs than precision in chrF: the square of its beta, 2


def pairwise_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Matrix:
    """chrF2: 500 · precision · recall / (4 · precision + recall) of character n-grams, spaces not counted.

    Both are averages over the lengths of n-grams that both texts have.
    """
    precision, recall, lengths = np.zeros((3, len(hypotheses), len(references)))
    for grams in _count_ngrams(hypotheses, references, lambda text: "".join(text.split()), _MAX_CHARACTER_NGRAM):
        both = (grams.in_hypothesis > 0) & (grams.in_reference > 0)
        precision += both * grams.matches / np.maximum(grams.in_hypothesis, 1)
        recall += both * grams.matches / np.maximum(grams.in_reference, 1)
        lengths += both
    precision, recall = precision / np.maximum(lengths, 1), recall / np.maximum(lengths, 1)
    weighed = _BETA_SQUARED * precision + recall
    return 100 * (1 + _BETA_SQUARED) * precision * recall / np.where(weighed > 0, weighed, 1)


def pairwise_bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str | None = None) -> Matrix:
    """Sentence BLEU, over the lengths of n-grams that the hypothesis has; `tokenize` as for the score of whole texts.

    The first length of which nothing matches counts as half a match, the next such as a quarter, and so on.
    """
    tokenizer = _load_tokenizer(references, tokenize)
    by_length = list(
        _count_ngrams(hypotheses, references, lambda text: tokenizer(text.rstrip()).split(), _MAX_WORD_NGRAM)
    )
    logarithms, lengths, misses = np.zeros((3, len(hypotheses), len(references)))
    for grams in by_length:
        there = grams.in_hypothesis > 0
        missed = there & (grams.matches == 0)
        misses += missed
        matches = np.where(missed, 0.5**misses, np.where(there, grams.matches, 1))
        logarithms += np.log(matches / np.maximum(grams.in_hypothesis, 1))
        lengths += there
    words = by_length[0]
    brevity = np.minimum(0, 1 - words.in_reference / np.maximum(words.in_hypothesis, 1))
    bleu = 100 * np.exp(brevity + logarithms / np.maximum(lengths, 1))
    return np.where(words.matches > 0, bleu, 0.0)


@dataclass(frozen=True)
class _NgramCounts:
    """n-grams of one length, for every pair of texts."""

    matches: Matrix
    in_hypothesis: Counts  # a column of numbers
    in_reference: Counts  # a row of numbers


def _count_ngrams(
    hypotheses: Sequence[str], references: Sequence[str], split: Callable[[str], Sequence[str]], max_n: int
) -> Iterator[_NgramCounts]:
    different = {text: place for place, text in enumerate(dict.fromkeys([*hypotheses, *references]))}
    rows, columns = (np.array([different[text] for text in texts], np.int64) for texts in (hypotheses, references))
    for counts, table in _ngram_tables([split(text) for text in different], max_n):
        shared = (table[rows] @ table[columns].T).astype(np.float64)
        alike = rows[:, None] == columns
        matches = np.where(alike, counts[rows][:, None], shared)
        yield _NgramCounts(matches, counts[rows][:, None], counts[columns][None])


def _ngram_tables(texts: list[Sequence[str]], max_n: int) -> Iterator[tuple[Counts, NDArray[np.float32]]]:
    """Of each length: how many n-grams every text has, and a table whose rows' products count those of two texts.

    The second occurrence of an n-gram in a text is a thing of its own, as is the third, so that each is there or not.
    What one text alone has is left out of the table.
    """
    symbols: dict[str, int] = {}
    name = np.array([symbols.setdefault(symbol, len(symbols)) for text in texts for symbol in text], np.int64)
    last, owner = name, np.repeat(np.arange(len(texts)), np.array([len(text) for text in texts], np.int64))
    for length in range(1, max_n + 1):
        if length > 1:  # every n-gram but those at the end of a text grows by the symbol behind it
            grows = owner[:-1] == owner[1:]
            last, owner = last[1:][grows], owner[1:][grows]
            name = _renumber(name[:-1][grows] * len(symbols) + last)
        thing = _renumber(name * (name.size + 1) + _occurrence_index(owner * (name.size + 1) + name))
        often = np.bincount(thing) > 1
        kept = often[thing]
        table = np.zeros((len(texts), int(often.sum())), np.float32)
        table[owner[kept], _renumber(thing[kept])] = 1
        yield np.bincount(owner, minlength=len(texts)), table


def _occurrence_index(key: Counts) -> Counts:
    """How many before it are the same."""
    order = key.argsort(kind="stable")
    ordered = key[order]
    place = np.arange(key.size)
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))[: key.size]
    before = np.empty_like(key)
    before[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return before


def _renumber(key: Counts) -> Counts:
    """The same for the same, counted from 0."""
    return np.unique(key, return_inverse=True)[1]


def _load_tokenizer(references: Sequence[str], tokenize: str | None) -> Callable[[str], str]:
    check_metric("bleu")
    name = tokenizer_name(references, tokenize)
    from sacrebleu.metrics.bleu import BLEU

    tokenizer: Callable[[str], str] = BLEU(tokenize=name).tokenizer
    return tokenizer
