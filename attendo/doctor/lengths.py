"""Sentence length checks: misaligned lines, unusual length ratios, sentences too long for a batch.

How long a target is says much about how long its source is. Let p(t | s) be the share of targets of length t among the
pairs whose source has length s, counted over the whole corpus in classes of length. If the targets of a stretch have
slipped by k lines, then

    ∑ log p(target i + k | source i) - log p(target i | source i)

grows with every pair of it, and elsewhere it falls. It is the logarithm of a ratio of likelihoods: a sum above s turns
up by chance in about e^-s of all places. So the best path through the lags is looked for, in which a stretch must gain
LEAST_SUM to be worth leaving lag 0 for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo.doctor.bad_lines import Places
from attendo.doctor.data_sampling import Stretch
from attendo.doctor.finding import MOST_EXAMPLES, Finding, counted, share

LOPSIDED = 3.0  # times the usual ratio, either way
LOPSIDED_ABOVE = 10  # tokens of the longer side; in shorter pairs one word is enough for an odd ratio
MANY_LOPSIDED = 0.01
SLIPPED_TOO_FAR = 0.01  # share of slipped pairs that is a fault
LEAST_TO_TELL = 200  # pairs
LengthArray = NDArray[np.int64]
LAGS = tuple(lag for lag in range(-10, 11) if lag)
MOST_CLASSES = 16
LEAST_PAIRS = 20
LEAST_SUM = 25.0  # nats: with a million pairs and all lags, one false alarm in a thousand corpora
LEAST_GAIN = 0.3  # of what a pair of a truly slipped stretch gains on average
TELLING = 0.2  # nats: where a pair gains less than that, lengths are not related closely enough to tell


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Lengths in tokens of neighbouring pairs of one corpus."""

    corpus: int
    first: int
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)


class PairLengths:
    """All lengths that were read: two numbers a pair."""

    def __init__(self) -> None:
        self._parts: list[Neighbours] = []

    def add(self, stretch: Stretch) -> None:
        part = Neighbours(stretch.corpus, stretch.first, stretch.source.lengths, stretch.target.lengths)
        self._parts.append(part)

    @property
    def parts(self) -> list[Neighbours]:
        """Those that follow each other joined."""
        groups: list[list[Neighbours]] = []
        for part in self._parts:
            last = groups[-1][-1] if groups else None
            if last is not None and (last.corpus, last.first + len(last)) == (part.corpus, part.first):
                groups[-1].append(part)
            else:
                groups.append([part])
        return [_joined(group) for group in groups]

    def all(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.concatenate([part.source for part in self._parts]), np.concatenate([p.target for p in self._parts])

    def place(self, number: int) -> tuple[int, int]:
        """Corpus and pair of the number-th of all pairs that were read."""
        for part in self._parts:
            if number < len(part):
                return part.corpus, part.first + number
            number -= len(part)
        raise IndexError(number)


def misaligned(lengths: PairLengths, places: Places, related: bool = True) -> Finding:
    """Spans of lines whose lengths fit the lines before or after them much better than their own.

    `related`: whether long sources usually have long targets, as in translation.
    """
    parts = lengths.parts
    slipped: list[tuple[int, int, int, Slipped]] = []
    gains = {}
    for corpus in sorted({part.corpus for part in parts}):
        own = [part for part in parts if part.corpus == corpus]
        alignment = find_slipped([(part.source, part.target) for part in own])
        gains[corpus] = alignment.gain if alignment.telling else 0.0
        for each in alignment.slipped:
            start = own[each.stretch].first
            slipped.append((corpus, start + each.first, start + each.last - 1, each))
    pairs = sum(len(part) for part in parts)
    wrong = sum(last - first + 1 for _, first, last, _ in slipped)
    values = {"pairs": pairs, "slipped": wrong, "spans": len(slipped)}
    if not any(gains.values()):
        return _unrelated(lengths, places, values, related)
    if not slipped:
        return Finding("misaligned lines", "ok", f"none in {counted(pairs, 'pairs')}", values=values)
    largest = sorted(slipped, key=lambda found: -found[3].sum)[:MOST_EXAMPLES]
    return Finding(
        "misaligned lines",
        "fault" if wrong >= SLIPPED_TOO_FAR * pairs else "warning",
        f"{counted(len(slipped), 'spans')} with {counted(wrong, 'pairs')} ({share(wrong / pairs)}) where the target "
        "belongs to another line",
        "look for a line too many or too few near the ends of a span (found to within a few lines), and mend the files",
        tuple(
            f"{places.span(corpus, first, last)}: the targets fit when moved {_moved(each.lag)}"
            for corpus, first, last, each in largest
        ),
        values,
        stops=False,
    )


def _unrelated(lengths: PairLengths, places: Places, values: dict[str, int], related: bool) -> Finding:
    """Lengths that tell nothing: in files that belong together this is rare, in shuffled ones it is the rule."""
    source, target = lengths.all()
    vary = all(np.quantile(side, 0.9) > 1.2 * np.quantile(side, 0.1) for side in (source, target))
    if not related or not vary or len(source) < LEAST_TO_TELL:
        found = "lengths of source and target have too little to do with each other to tell"
        return Finding("misaligned lines", "ok", found, values=values)
    numbers = np.linspace(0, len(source) - 1, MOST_EXAMPLES + 2).astype(int)[1:-1].tolist()
    return Finding(
        "misaligned lines",
        "warning",
        "lengths of source and target have nothing to do with each other",
        "look at some pairs: are the files in the same order? (about.task summarization or conversation expects this)",
        tuple(places.quoted(*lengths.place(number)) for number in numbers),
        values,
    )


def length_ratios(lengths: PairLengths, places: Places) -> Finding:
    """Pairs with far more or fewer target tokens for each source token than is usual."""
    source, target = lengths.all()
    ratios = target / source
    usual = float(np.median(ratios))
    low, high = (float(each) for each in np.quantile(ratios, (0.01, 0.99)))
    off = np.abs(np.log(ratios / usual))
    odd = (off > np.log(LOPSIDED)) & (np.maximum(source, target) > LOPSIDED_ABOVE)
    count = int(odd.sum())
    values = {"median": usual, "low": low, "high": high, "lopsided": count, "pairs": len(ratios)}
    found = f"{usual:.2f} target tokens for a source token, {low:.2f} to {high:.2f} in 98 of 100 pairs"
    if not count:
        return Finding("length ratio", "ok", found, values=values)
    worst = np.argsort(np.where(odd, -off, 0.0), kind="stable")[: min(count, MOST_EXAMPLES)]
    return Finding(
        "length ratio",
        "warning" if count >= MANY_LOPSIDED * len(ratios) else "note",
        f"{found}; {counted(count, 'pairs')} ({share(count / len(ratios))}) more than {LOPSIDED:g} times off",
        f"look at such lines; data.max_length_ratio (lower it, down to {LOPSIDED * max(usual, 1 / usual):.0f}) leaves "
        "the longer ones out",
        tuple(places.quoted(*lengths.place(int(number))) for number in worst),
        values,
    )


def long_sentences(lengths: PairLengths, places: Places, batch_tokens: int) -> Finding:
    """Pairs that fit no batch."""
    longest = np.maximum(*lengths.all()) + 1  # with the control token that joins each side
    middle, usual, most = int(np.median(longest)), int(np.quantile(longest, 0.99)), int(longest.max())
    too_wide = int((longest > batch_tokens).sum())
    values = {"median": middle, "most_of_100": usual, "longest": most, "above_batch_tokens": too_wide}
    found = f"half of the pairs have up to {middle} positions, 99 of 100 up to {usual}, the longest {most:,}"
    if not too_wide:
        return Finding("long sentences", "ok", found, values=values)
    return Finding(
        "long sentences",
        "warning",
        f"{found}; {counted(too_wide, 'pairs')} do not fit into train.batch_tokens {batch_tokens:,} and stand alone",
        f"lower data.max_length to {batch_tokens - 1}, or raise train.batch_tokens",
        (places.quoted(*lengths.place(int(longest.argmax()))),),
        values,
    )


def _joined(parts: list[Neighbours]) -> Neighbours:
    source, target = np.concatenate([p.source for p in parts]), np.concatenate([p.target for p in parts])
    return Neighbours(parts[0].corpus, parts[0].first, source, target)


def _moved(lag: int) -> str:
    """The target of a source stands `lag` lines below it, so it has to go up by that much."""
    return f"{counted(abs(lag), 'lines')} {'up' if lag > 0 else 'down'}"


@dataclass(frozen=True)
class Slipped:
    """Pairs from `first` up to but not including `last`: the target of source i stands at i + lag."""

    stretch: int
    first: int
    last: int
    lag: int
    sum: float


@dataclass(frozen=True)
class Alignment:
    """What the lengths tell. `gain` is what each slipped pair would add, in nats."""

    gain: float
    slipped: tuple[Slipped, ...]

    @property
    def telling(self) -> bool:
        return self.gain >= TELLING


def find_slipped(stretches: Sequence[tuple[LengthArray, LengthArray]]) -> Alignment:
    """`stretches` are lengths of source and target of neighbouring pairs, all from one corpus."""
    classes = _classes(stretches)
    table, gain = _best_table(classes)
    if gain < TELLING:
        return Alignment(gain, ())
    found = [
        slipped
        for number, (source, target) in enumerate(classes)
        for slipped in _in_stretch(number, source, target, table, gain)
    ]
    return Alignment(gain, tuple(found))


def _classes(stretches: Sequence[tuple[LengthArray, LengthArray]]) -> list[tuple[LengthArray, LengthArray]]:
    """Lengths as numbers of classes that hold about equally many sentences."""
    sides = []
    for side in range(2):
        lengths = np.concatenate([stretch[side] for stretch in stretches])
        classes = int(np.clip(len(lengths) ** (1 / 3), 2, MOST_CLASSES))
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, classes + 1)[1:-1]))
        sides.append([np.searchsorted(edges, stretch[side], side="right") for stretch in stretches])
    return list(zip(*sides, strict=True))


def _best_table(classes: Sequence[tuple[LengthArray, LengthArray]]) -> tuple[NDArray[np.float64], float]:
    """log p(target | source) from the pairs as they stand, unless another lag is far better: then all has slipped."""
    tables = {lag: _table(classes, lag) for lag in (0, *LAGS)}
    best = max(tables, key=lambda lag: tables[lag][1])
    return tables[best] if tables[best][1] > 2 * tables[0][1] + TELLING else tables[0]


def _table(classes: Sequence[tuple[LengthArray, LengthArray]], lag: int) -> tuple[NDArray[np.float64], float]:
    """log p(target | source), and how much more a pair of that lag has of it than two sentences that are no pair."""
    shape = tuple(1 + max(int(stretch[side].max()) for stretch in classes) for side in range(2))
    counts = np.zeros(shape)
    for source, target in classes:
        here, there = _at_lag(len(source), lag)
        np.add.at(counts, (source[here], target[there]), 1)
    targets = (counts.sum(0) + 0.5) / (counts.sum() + 0.5 * shape[1])
    weight = 2.0  # pairs' worth of the targets' own distribution, for sources that are rare
    table = np.log((counts + weight * targets) / (counts.sum(1, keepdims=True) + weight))
    joint = counts / max(1.0, counts.sum())
    apart = np.outer(joint.sum(1), joint.sum(0))
    return table, float(((joint - apart) * table).sum())


def _at_lag(pairs: int, lag: int) -> tuple[slice, slice]:
    """The sources that have a target at that lag, and those targets."""
    return slice(max(0, -lag), max(0, min(pairs, pairs - lag))), slice(max(0, lag), max(0, min(pairs, pairs + lag)))


def _in_stretch(
    number: int, source: LengthArray, target: LengthArray, table: NDArray[np.float64], gain: float
) -> Iterator[Slipped]:
    """The parts of the best path that are not at lag 0, where no other lag does nearly as well."""
    if all(_largest_sum(_scores(source, target, table, lag)) < LEAST_SUM for lag in LAGS):
        return
    scores = np.stack([_scores(source, target, table, lag).astype(np.float32) for lag in (0, *LAGS)], axis=1)
    path = _best_path(scores)
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    for first, last in pairwise(borders):
        lag, sums = int(path[first]), scores[first:last].sum(0, dtype=np.float64)
        total, next_best = sums[lag], np.delete(sums, lag)[1:].max()
        enough = last - first >= LEAST_PAIRS and total >= max(LEAST_SUM, LEAST_GAIN * gain * (last - first))
        if lag and enough and total - next_best >= LEAST_SUM / 2:
            yield Slipped(number, first, last, (0, *LAGS)[lag], float(total))


def _scores(source: LengthArray, target: LengthArray, table: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    here, there = _at_lag(len(source), lag)
    scores = np.zeros(len(source))
    scores[here] = table[source[here], target[there]] - table[source[here], target[here]]
    return scores


def _largest_sum(scores: NDArray[np.float64]) -> float:
    """Of any stretch."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    return float((sums - np.minimum.accumulate(sums)).max())


def _best_path(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Which column to be in at each row, so that the sum is largest if every change of column costs half a stretch."""
    cost = LEAST_SUM / 2
    best = np.full(scores.shape[1], -cost)
    best[0] = 0.0
    leaders = np.zeros(len(scores), np.int64)
    stays = np.zeros(scores.shape, np.bool_)
    for row, gained in enumerate(scores):
        leaders[row] = leader = best.argmax()
        change = best[leader] - cost
        np.greater_equal(best, change, out=stays[row])
        best = np.maximum(best, change) + gained
    path = np.zeros(len(scores), np.int64)
    here = int(best.argmax())
    for row in range(len(scores) - 1, -1, -1):
        path[row] = here
        here = here if stays[row, here] else int(leaders[row])
    return path
