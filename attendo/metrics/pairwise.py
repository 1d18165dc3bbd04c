"""Sentence chrF and BLEU of many hypotheses against many references. Each text is split into n-grams once.

The values equal those of sacrebleu's `sentence_chrf` and `sentence_bleu`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attendo.metrics.sacrebleu_scores import tokenizer_name
from attendo.metrics.scores import check_metric

Matrix = NDArray[np.float64]  # [hypotheses, references]
Counts = NDArray[np.int64]

_MAX_CHARACTER_NGRAM, _MAX_WORD_NGRAM = 6, 4  # maximum n-gram order of chrF and BLEU
_BETA_SQUARED = 4.0  # square of chrF's beta of 2, the weight of recall against precision


def pairwise_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Matrix:
    """Return chrF2: 500 · precision · recall / (4 · precision + recall) of character n-grams without spaces.

    Precision and recall are averages over the n-gram orders that both texts have.
    """
    precision, recall, lengths = np.zeros((3, len(hypotheses), len(references)))
    for grams in _count_ngrams(hypotheses, references, lambda text: "".join(text.split()), _MAX_CHARACTER_NGRAM):
        both = (grams.in_hypothesis > 0) & (grams.in_reference > 0)
        precision += both * grams.matches / np.maximum(grams.in_hypothesis, 1)
        recall += both * grams.matches / np.maximum(grams.in_reference, 1)
        lengths += both
    precision, recall = precision / np.maximum(lengths, 1), recall / np.maximum(lengths, 1)
    denominator = _BETA_SQUARED * precision + recall
    return 100 * (1 + _BETA_SQUARED) * precision * recall / np.where(denominator > 0, denominator, 1)


def pairwise_bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str | None = None) -> Matrix:
    """Return sentence BLEU over the n-gram orders that the hypothesis has. `tokenize` is as for corpus BLEU.

    Exponential smoothing: the first order without a match counts 1/2 match, the next 1/4, and so on.
    """
    tokenizer = _load_tokenizer(references, tokenize)
    by_length = list(
        _count_ngrams(hypotheses, references, lambda text: tokenizer(text.rstrip()).split(), _MAX_WORD_NGRAM)
    )
    logarithms, lengths, misses = np.zeros((3, len(hypotheses), len(references)))
    for grams in by_length:
        has_ngrams = grams.in_hypothesis > 0
        no_match = has_ngrams & (grams.matches == 0)
        misses += no_match
        matches = np.where(no_match, 0.5**misses, np.where(has_ngrams, grams.matches, 1))
        logarithms += np.log(matches / np.maximum(grams.in_hypothesis, 1))
        lengths += has_ngrams
    words = by_length[0]
    brevity = np.minimum(0, 1 - words.in_reference / np.maximum(words.in_hypothesis, 1))
    bleu = 100 * np.exp(brevity + logarithms / np.maximum(lengths, 1))
    return np.where(words.matches > 0, bleu, 0.0)


@dataclass(frozen=True)
class _NgramCounts:
    """n-gram counts of one order, for every pair of texts."""

    matches: Matrix
    in_hypothesis: Counts  # [hypotheses, 1]
    in_reference: Counts  # [1, references]


def _count_ngrams(
    hypotheses: Sequence[str], references: Sequence[str], split: Callable[[str], Sequence[str]], max_n: int
) -> Iterator[_NgramCounts]:
    different = {text: index for index, text in enumerate(dict.fromkeys([*hypotheses, *references]))}
    rows, columns = (np.array([different[text] for text in texts], np.int64) for texts in (hypotheses, references))
    for counts, table in _ngram_tables([split(text) for text in different], max_n):
        shared = (table[rows] @ table[columns].T).astype(np.float64)
        alike = rows[:, None] == columns
        matches = np.where(alike, counts[rows][:, None], shared)
        yield _NgramCounts(matches, counts[rows][:, None], counts[columns][None])


def _ngram_tables(texts: list[Sequence[str]], max_n: int) -> Iterator[tuple[Counts, NDArray[np.float32]]]:
    """Yield per n-gram order the n-gram count of each text, and a 0/1 table with one row per text.

    The dot product of two rows is the number of n-grams that two texts share. Repeated occurrences of an n-gram in a
    text have separate columns. n-grams of a single text are left out of the table.
    """
    symbols: dict[str, int] = {}
    name = np.array([symbols.setdefault(symbol, len(symbols)) for text in texts for symbol in text], np.int64)
    last, owner = name, np.repeat(np.arange(len(texts)), np.array([len(text) for text in texts], np.int64))
    for length in range(1, max_n + 1):
        if length > 1:  # extend every n-gram by its next symbol, except at the end of a text
            grows = owner[:-1] == owner[1:]
            last, owner = last[1:][grows], owner[1:][grows]
            name = _renumber(name[:-1][grows] * len(symbols) + last)
        thing = _renumber(name * (name.size + 1) + _occurrence_index(owner * (name.size + 1) + name))
        shared = np.bincount(thing) > 1
        is_shared = shared[thing]
        table = np.zeros((len(texts), int(shared.sum())), np.float32)
        table[owner[is_shared], _renumber(thing[is_shared])] = 1
        yield np.bincount(owner, minlength=len(texts)), table


def _occurrence_index(key: Counts) -> Counts:
    """Return for each element the number of equal elements before it."""
    order = key.argsort(kind="stable")
    sorted_keys = key[order]
    index = np.arange(key.size)
    begins = np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1]))[: key.size]
    before = np.empty_like(key)
    before[order] = index - np.maximum.accumulate(np.where(begins, index, 0))
    return before


def _renumber(key: Counts) -> Counts:
    """Replace equal keys by equal consecutive numbers from 0."""
    return np.unique(key, return_inverse=True)[1]


def _load_tokenizer(references: Sequence[str], tokenize: str | None) -> Callable[[str], str]:
    check_metric("bleu")
    name = tokenizer_name(references, tokenize)
    from sacrebleu.metrics.bleu import BLEU

    tokenizer: Callable[[str], str] = BLEU(tokenize=name).tokenizer
    return tokenizer
