"""The measures of exposure bias, from predictions to numbers. docs/exposure-bias.md has the formulas."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attendo.explore.exposure.corruptions import Corruption, Ids
from attendo.metrics.text_scores import split_words
from attendo.text.scripts import SCRIPTS_WITHOUT_SPACES, main_script

FloatArray = NDArray[np.float64]
Values = tuple[float | None, ...]  # None: no sentence has this position
Histories = Literal["sampled", "greedy"]
QUARTERS = 4
MAX_DISTANCE = 8  # tokens after a corrupted one
MAX_STEPS = 20  # tokens of a history that ExAccErr counts


@dataclass(frozen=True)
class AccuracyByPosition:
    """Share of correct tokens at each position, after the prefix of the reference and after the model's own."""

    gold: Values
    own: Values
    counts: tuple[int, ...]  # references with at least this many tokens, EOS included

    @property
    def gold_mean(self) -> float:
        """Share of all tokens."""
        return _weighted_mean(self.gold, self.counts)

    @property
    def own_mean(self) -> float:
        return _weighted_mean(self.own, self.counts)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "gold_mean": self.gold_mean, "own_mean": self.own_mean}


@dataclass(frozen=True)
class PrecisionByQuarter:
    """Clipped precision of the n-grams in each quarter of the output, against the whole reference."""

    unigrams: Values
    bigrams: Values
    unigram_counts: tuple[int, ...]
    bigram_counts: tuple[int, ...]


@dataclass(frozen=True)
class Recovery:
    """The effect of one corrupted token on the d-th token after it, d = 1 to 8."""

    corruption: Corruption
    differences: FloatArray = field(repr=False, compare=False)  # nats by line and d; NaN if there is no such token

    @property
    def skipped(self) -> int:
        """Lines without a token to corrupt, or without another token to replace it."""
        return int(np.isnan(self.differences[:, 0]).sum())

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(np.isfinite(self.differences).sum(axis=0).tolist())

    @property
    def deltas(self) -> Values:
        """Δ(d): mean increase of the negative log-likelihood of the d-th token, in nats."""
        return self._map_columns(lambda column: float(column.mean()), 1)

    @property
    def standard_errors(self) -> Values:
        """The standard error of each mean."""
        return self._map_columns(lambda column: float(column.std(ddof=1) / np.sqrt(len(column))), 2)

    @property
    def half_life(self) -> int | None:
        """The least d with Δ(d) ≤ Δ(1)/2. None if there is none up to the largest d that was measured."""
        first = self.deltas[0]
        if first is None:
            return None
        found = (d for d, value in enumerate(self.deltas, start=1) if value is not None and value <= first / 2)
        return next(found, None)

    @property
    def max_distance(self) -> int:
        """The largest d that was measured."""
        return sum(count > 0 for count in self.counts)

    def as_json(self) -> dict[str, Any]:
        names = ("deltas", "standard_errors", "counts", "half_life", "max_distance", "skipped")
        return {name: getattr(self, name) for name in names}

    def _map_columns(self, compute: Callable[[FloatArray], float], least: int) -> Values:
        columns = [column[np.isfinite(column)] for column in self.differences.T]
        return tuple(compute(column) if len(column) >= least else None for column in columns)


@dataclass(frozen=True)
class ExcessError:
    """Accumulated divergence from an oracle along own histories, beside that along gold histories."""

    histories: Histories
    own: tuple[float, ...]  # R(l): mean over sentences of the sum over the first l tokens, in nats
    gold: tuple[float, ...]  # G(l)
    own_tokens: tuple[int, ...]  # histories in the sums: a sentence has at most l
    gold_tokens: tuple[int, ...]

    @property
    def percent(self) -> Values:
        """%ExAccErr(l) = 100 (R(l)/G(l) − 1). 0 if both are equal, None if only G(l) is 0."""
        pairs = zip(self.own, self.gold, strict=True)
        return tuple(0.0 if own == gold else None if gold == 0 else 100 * (own / gold - 1) for own, gold in pairs)

    @property
    def accumulated(self) -> Values:
        """AccErr(l) = l R(l)/G(l)."""
        percents = enumerate(self.percent, start=1)
        return tuple(None if percent is None else length * (1 + percent / 100) for length, percent in percents)

    @property
    def percent_per_token(self) -> Values:
        """The same as `percent`, with R(l) and G(l) divided by their number of histories."""
        rates = (
            (own / own_tokens, gold / gold_tokens)
            for own, gold, own_tokens, gold_tokens in zip(
                self.own, self.gold, self.own_tokens, self.gold_tokens, strict=True
            )
        )
        return tuple(0.0 if own == gold else None if gold == 0 else 100 * (own / gold - 1) for own, gold in rates)

    def as_json(self) -> dict[str, Any]:
        names = ("own", "gold", "own_tokens", "gold_tokens", "percent", "percent_per_token", "accumulated")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class DistractorGap:
    """Mean log-probability of the reference and of another line's reference at each position."""

    reference: Values
    distractor: Values
    counts: tuple[int, ...]
    skipped: int  # lines without a distractor

    @property
    def gap(self) -> Values:
        pairs = zip(self.reference, self.distractor, strict=True)
        return tuple(None if one is None or other is None else one - other for one, other in pairs)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "gap": self.gap}


@dataclass(frozen=True)
class ExposureReport:
    """All measures of one model on one text."""

    sentences: int
    tokens: int  # of the references, EOS included
    nll: float  # negative log-likelihood per token of the references, in nats
    cut: int  # own greedy outputs that reached the length limit
    accuracy: AccuracyByPosition
    quarters: PrecisionByQuarter
    recovery: dict[Corruption, Recovery]
    distractor: DistractorGap
    excess: dict[Histories, ExcessError] | None = None  # None without an oracle
    oracle_nll: float | None = None

    def as_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("sentences", "tokens", "nll", "cut", "oracle_nll")}
        excess = None if self.excess is None else {name: each.as_json() for name, each in self.excess.items()}
        return {
            **counts,
            "accuracy": self.accuracy.as_json(),
            "quarters": asdict(self.quarters),
            "recovery": {name: each.as_json() for name, each in self.recovery.items()},
            "excess_error": excess,
            "distractor": self.distractor.as_json(),
        }


def compute_accuracy(
    references: Sequence[Ids], predictions: Sequence[Ids], outputs: Sequence[Ids]
) -> AccuracyByPosition:
    """Compare references (with EOS) with predictions after gold prefixes, and with the model's own outputs."""
    size = max(map(len, references))
    gold, own, counts = (np.zeros(size, np.int64) for _ in range(3))
    for right, predicted, output in zip(references, predictions, outputs, strict=True):
        counts[: len(right)] += 1
        gold[: len(right)] += np.array(right) == np.array(predicted)
        shared = min(len(right), len(output))
        own[:shared] += np.array(right[:shared]) == np.array(output[:shared])
    return AccuracyByPosition(tuple(gold / counts), tuple(own / counts), tuple(counts.tolist()))


def compute_precision(outputs: Sequence[str], references: Sequence[str]) -> PrecisionByQuarter:
    """Compute the precision of each quarter. Word k of n, from 0, is in quarter ⌊4k/n⌋, a bigram in that of its end.

    In scripts without spaces every character is a word.
    """
    by_character = main_script(references) in SCRIPTS_WITHOUT_SPACES
    matches, counts = np.zeros((2, QUARTERS), np.int64), np.zeros((2, QUARTERS), np.int64)
    for output, reference in zip(outputs, references, strict=True):
        words, right = ([*split_words(text, by_character)] for text in (output, reference))
        for order, split in enumerate((_list_unigrams, _list_bigrams)):
            known = Counter(split(right))
            parts: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(QUARTERS)]
            for k, ngram in enumerate(split(words), start=order):
                parts[QUARTERS * k // len(words)][ngram] += 1
            matches[order] += [(part & known).total() for part in parts]
            counts[order] += [part.total() for part in parts]
    values = [
        tuple(m / n if n else None for m, n in zip(*rows, strict=True)) for rows in zip(matches, counts, strict=True)
    ]
    return PrecisionByQuarter(values[0], values[1], *(tuple(row.tolist()) for row in counts))


def compute_excess(histories: Histories, own: Sequence[FloatArray], gold: Sequence[FloatArray]) -> ExcessError:
    """Sum divergences over the first l tokens of each sentence, l = 1 to 20. After its end a sentence adds nothing."""
    (own_sums, own_tokens), (gold_sums, gold_tokens) = _accumulate(own), _accumulate(gold)
    return ExcessError(histories, own_sums, gold_sums, own_tokens, gold_tokens)


def compute_gap(references: Sequence[FloatArray], distractors: Sequence[FloatArray | None]) -> DistractorGap:
    """Average log-probabilities by position, over the positions that both texts of a line have."""
    size = max((min(len(r), len(d)) for r, d in zip(references, distractors, strict=True) if d is not None), default=0)
    sums, counts = np.zeros((2, size)), np.zeros(size, np.int64)
    for reference, distractor in zip(references, distractors, strict=True):
        if distractor is not None:
            shared = min(len(reference), len(distractor))
            sums[0, :shared] += reference[:shared]
            sums[1, :shared] += distractor[:shared]
            counts[:shared] += 1
    means = sums / np.maximum(counts, 1)
    skipped = sum(each is None for each in distractors)
    return DistractorGap(tuple(means[0].tolist()), tuple(means[1].tolist()), tuple(counts.tolist()), skipped)


def _weighted_mean(values: Values, counts: Sequence[int]) -> float:
    return float(np.average([value or 0.0 for value in values], weights=counts))


def _list_unigrams(words: Sequence[str]) -> list[tuple[str, ...]]:
    return [(word,) for word in words]


def _list_bigrams(words: Sequence[str]) -> list[tuple[str, ...]]:
    return list(pairwise(words))


def _accumulate(divergences: Sequence[FloatArray]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return for each l the mean of the sums, and the number of summed values."""
    sums, counts = np.zeros(MAX_STEPS), np.zeros(MAX_STEPS, np.int64)
    for each in divergences:
        first = each[:MAX_STEPS]
        sums[: len(first)] += first
        counts[: len(first)] += 1
    return tuple((np.cumsum(sums) / len(divergences)).tolist()), tuple(np.cumsum(counts).tolist())
