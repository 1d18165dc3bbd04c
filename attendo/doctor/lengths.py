"""Sentence length checks: misaligned lines, unusual length ratios, sentences too long for a batch.

The length of a target depends on the length of its source. Let p(t | s) be the share of targets of length t among the
pairs whose source has length s, counted over the whole corpus with binned lengths. If the targets of a span are
shifted by k lines, then

    ∑ log p(target i + k | source i) - log p(target i | source i)

grows with every pair of the span and falls elsewhere. The sum is a log-likelihood ratio: by chance it exceeds s at
about e^-s of all positions. The check finds the best path through the lags. A span at another lag than 0 must gain
MIN_SUM.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo.doctor.bad_lines import LineLocator
from attendo.doctor.data_sampling import PairBlock, locate
from attendo.doctor.finding import MAX_EXAMPLES, Finding, format_count, format_share
from attendo.errors import LocalizedText

MAX_RATIO_FACTOR = 3.0  # largest factor above or below the median ratio
MIN_RATIO_TOKENS = 10  # tokens of the longer side; in shorter pairs one word can cause an unusual ratio
LOPSIDED_WARNING_SHARE = 0.01
MISALIGNED_FAULT_SHARE = 0.01  # a fault from this share of misaligned pairs
MIN_PAIRS_TO_JUDGE = 200  # unrelated lengths are reported from this number of pairs
LengthArray = NDArray[np.int64]
LAGS = tuple(lag for lag in range(-10, 11) if lag)
MAX_CLASSES = 16
MIN_PAIRS = 20
MIN_SUM = 25.0  # nats; with a million pairs and all lags, one false alarm in a thousand corpora
MIN_GAIN_RATIO = 0.3  # share of the mean gain of a truly misaligned pair
MIN_INFORMATIVE_GAIN = 0.2  # nats per pair; below this, lengths are too weakly related to detect misalignment


@dataclass(frozen=True, eq=False)
class LengthBlock:
    """Lengths in tokens of consecutive pairs of one corpus."""

    corpus: int
    first: int
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)


class PairLengths:
    """Source and target lengths of all pairs that were read."""

    def __init__(self) -> None:
        self._blocks: list[LengthBlock] = []

    def add(self, pair_block: PairBlock) -> None:
        part = LengthBlock(pair_block.corpus, pair_block.first, pair_block.source.lengths, pair_block.target.lengths)
        self._blocks.append(part)

    @property
    def contiguous_blocks(self) -> list[LengthBlock]:
        """The blocks, with adjacent blocks joined."""
        groups: list[list[LengthBlock]] = []
        for part in self._blocks:
            last = groups[-1][-1] if groups else None
            if last is not None and (last.corpus, last.first + len(last)) == (part.corpus, part.first):
                groups[-1].append(part)
            else:
                groups.append([part])
        return [_join_blocks(group) for group in groups]

    def to_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.concatenate([part.source for part in self._blocks]), np.concatenate([p.target for p in self._blocks])

    def locate(self, number: int) -> tuple[int, int]:
        """Return corpus and pair index of the number-th pair that was read."""
        return locate(((block.corpus, block.first, len(block)) for block in self._blocks), number)


def check_misaligned_lines(lengths: PairLengths, locator: LineLocator, lengths_related: bool = True) -> Finding:
    """Find spans of lines whose lengths fit the preceding or following lines much better than their own.

    `lengths_related`: True if long sources usually have long targets, as in translation.
    """
    spans, is_informative = _list_misaligned_spans(lengths)
    pairs = sum(len(part) for part in lengths.contiguous_blocks)
    wrong = sum(last - first + 1 for _, first, last, _ in spans)
    values = {"pairs": pairs, "slipped": wrong, "spans": len(spans)}
    if not is_informative:
        return _report_unrelated_lengths(lengths, locator, values, lengths_related)
    if not spans:
        return Finding(
            "misaligned lines",
            "ok",
            LocalizedText("none in {pairs}", pairs=format_count(pairs, "pairs")),
            values=values,
        )
    largest = sorted(spans, key=lambda found: -found[3].sum)[:MAX_EXAMPLES]
    return Finding(
        "misaligned lines",
        "fault" if wrong >= MISALIGNED_FAULT_SHARE * pairs else "warning",
        LocalizedText(
            "{spans} with {pairs} ({share}) where the target belongs to another line",
            spans=format_count(len(spans), "spans"),
            pairs=format_count(wrong, "pairs"),
            share=format_share(wrong / pairs),
        ),
        "look for a line too many or too few near the ends of a span (found to within a few lines), and mend the files",
        tuple(
            LocalizedText(
                "{place}: the targets fit when moved {move}",
                place=locator.describe_span(corpus, first, last),
                move=_describe_move(each.lag),
            )
            for corpus, first, last, each in largest
        ),
        values,
        stops=False,
    )


def _list_misaligned_spans(lengths: PairLengths) -> "tuple[list[tuple[int, int, int, MisalignedSpan]], bool]":
    """Return each span with its corpus and its first and last pair, and whether lengths tell anything in any corpus."""
    spans: list[tuple[int, int, int, MisalignedSpan]] = []
    is_informative = False
    parts = lengths.contiguous_blocks
    for corpus in sorted({part.corpus for part in parts}):
        own = [part for part in parts if part.corpus == corpus]
        alignment = find_misaligned_spans([(part.source, part.target) for part in own])
        is_informative = is_informative or bool(alignment.is_informative and alignment.gain)
        for each in alignment.spans:
            start = own[each.block].first
            spans.append((corpus, start + each.first, start + each.last - 1, each))
    return spans, is_informative


def _report_unrelated_lengths(
    lengths: PairLengths, locator: LineLocator, values: dict[str, int], lengths_related: bool
) -> Finding:
    """Report unrelated lengths, which are rare in parallel files and typical of shuffled files."""
    source, target = lengths.to_arrays()
    vary = all(np.quantile(side, 0.9) > 1.2 * np.quantile(side, 0.1) for side in (source, target))
    if not lengths_related or not vary or len(source) < MIN_PAIRS_TO_JUDGE:
        found = "lengths of source and target have too little to do with each other to tell"
        return Finding("misaligned lines", "ok", found, values=values)
    numbers = np.linspace(0, len(source) - 1, MAX_EXAMPLES + 2).astype(int)[1:-1].tolist()
    return Finding(
        "misaligned lines",
        "warning",
        "lengths of source and target have nothing to do with each other",
        "look at some pairs: are the files in the same order? (about.task summarization or conversation expects this)",
        tuple(locator.quote(*lengths.locate(number)) for number in numbers),
        values,
    )


def check_length_ratios(lengths: PairLengths, locator: LineLocator) -> Finding:
    """Find pairs whose ratio of target to source tokens is far from the median."""
    source, target = lengths.to_arrays()
    ratios = target / source
    usual = float(np.median(ratios))
    low, high = (float(each) for each in np.quantile(ratios, (0.01, 0.99)))
    off = np.abs(np.log(ratios / usual))
    odd = (off > np.log(MAX_RATIO_FACTOR)) & (np.maximum(source, target) > MIN_RATIO_TOKENS)
    count = int(odd.sum())
    values = {"median": usual, "low": low, "high": high, "lopsided": count, "pairs": len(ratios)}
    text = "{usual:.2f} target tokens for a source token, {low:.2f} to {high:.2f} in 98 of 100 pairs"
    found = LocalizedText(text, usual=usual, low=low, high=high)
    if not count:
        return Finding("length ratio", "ok", found, values=values)
    worst = np.argsort(np.where(odd, -off, 0.0), kind="stable")[: min(count, MAX_EXAMPLES)]
    return Finding(
        "length ratio",
        "warning" if count >= LOPSIDED_WARNING_SHARE * len(ratios) else "note",
        LocalizedText(
            "{found}; {pairs} ({share}) more than {factor:g} times off",
            found=found,
            pairs=format_count(count, "pairs"),
            share=format_share(count / len(ratios)),
            factor=MAX_RATIO_FACTOR,
        ),
        LocalizedText(
            "look at such lines; data.max_length_ratio (lower it, down to {limit:.0f}) leaves the longer ones out",
            limit=MAX_RATIO_FACTOR * max(usual, 1 / usual),
        ),
        tuple(locator.quote(*lengths.locate(int(number))) for number in worst),
        values,
    )


def check_long_sentences(lengths: PairLengths, locator: LineLocator, batch_tokens: int) -> Finding:
    """Find pairs that are longer than a batch."""
    longest = np.maximum(*lengths.to_arrays()) + 1  # one control token per side
    middle, usual, most = int(np.median(longest)), int(np.quantile(longest, 0.99)), int(longest.max())
    too_wide = int((longest > batch_tokens).sum())
    values = {"median": middle, "most_of_100": usual, "longest": most, "above_batch_tokens": too_wide}
    text = "half of the pairs have up to {middle} positions, 99 of 100 up to {usual}, the longest {most:,}"
    found = LocalizedText(text, middle=middle, usual=usual, most=most)
    if not too_wide:
        return Finding("long sentences", "ok", found, values=values)
    return Finding(
        "long sentences",
        "warning",
        LocalizedText(
            "{found}; {pairs} do not fit into train.batch_tokens {tokens:,} and stand alone",
            found=found,
            pairs=format_count(too_wide, "pairs"),
            tokens=batch_tokens,
        ),
        LocalizedText("lower data.max_length to {limit}, or raise train.batch_tokens", limit=batch_tokens - 1),
        (locator.quote(*lengths.locate(int(longest.argmax()))),),
        values,
    )


def _join_blocks(blocks: list[LengthBlock]) -> LengthBlock:
    source, target = np.concatenate([p.source for p in blocks]), np.concatenate([p.target for p in blocks])
    return LengthBlock(blocks[0].corpus, blocks[0].first, source, target)


def _describe_move(lag: int) -> str:
    """Describe the move that fixes a lag: a target `lag` lines below its source moves up by `lag` lines."""
    return LocalizedText("{lines} up" if lag > 0 else "{lines} down", lines=format_count(abs(lag), "lines"))


@dataclass(frozen=True)
class MisalignedSpan:
    """Pairs from `first` up to but not including `last`. The target of source i is at i + lag."""

    block: int
    first: int
    last: int
    lag: int
    sum: float


@dataclass(frozen=True)
class MisalignmentResult:
    """Misaligned spans, and the mean gain of a misaligned pair in nats."""

    gain: float
    spans: tuple[MisalignedSpan, ...]

    @property
    def is_informative(self) -> bool:
        return self.gain >= MIN_INFORMATIVE_GAIN


def find_misaligned_spans(blocks: Sequence[tuple[LengthArray, LengthArray]]) -> MisalignmentResult:
    """Find misaligned spans. `blocks` are source and target lengths of consecutive pairs of one corpus."""
    classes = _bin_lengths(blocks)
    table, gain = _choose_table(classes)
    if gain < MIN_INFORMATIVE_GAIN:
        return MisalignmentResult(gain, ())
    found = [
        span
        for number, (source, target) in enumerate(classes)
        for span in _find_in_block(number, source, target, table, gain)
    ]
    return MisalignmentResult(gain, tuple(found))


def _bin_lengths(blocks: Sequence[tuple[LengthArray, LengthArray]]) -> list[tuple[LengthArray, LengthArray]]:
    """Replace lengths by the indices of bins with about equal counts."""
    sides = []
    for side in range(2):
        lengths = np.concatenate([block[side] for block in blocks])
        classes = int(np.clip(len(lengths) ** (1 / 3), 2, MAX_CLASSES))
        edges = np.unique(np.quantile(lengths, np.linspace(0, 1, classes + 1)[1:-1]))
        sides.append([np.searchsorted(edges, block[side], side="right") for block in blocks])
    return list(zip(*sides, strict=True))


def _choose_table(classes: Sequence[tuple[LengthArray, LengthArray]]) -> tuple[NDArray[np.float64], float]:
    """Return log p(target | source) and its gain at lag 0, or at another lag if it fits far better."""
    tables = {lag: _fit_table(classes, lag) for lag in (0, *LAGS)}
    best = max(tables, key=lambda lag: tables[lag][1])
    return tables[best] if tables[best][1] > 2 * tables[0][1] + MIN_INFORMATIVE_GAIN else tables[0]


def _fit_table(classes: Sequence[tuple[LengthArray, LengthArray]], lag: int) -> tuple[NDArray[np.float64], float]:
    """Return log p(target | source) at a lag, and its mean excess of pairs over random source-target combinations."""
    shape = tuple(1 + max(int(block[side].max()) for block in classes) for side in range(2))
    counts = np.zeros(shape)
    for source, target in classes:
        here, there = _lag_slices(len(source), lag)
        np.add.at(counts, (source[here], target[there]), 1)
    targets = (counts.sum(0) + 0.5) / (counts.sum() + 0.5 * shape[1])
    weight = 2.0  # prior weight in pairs of the marginal target distribution, for rare sources
    table = np.log((counts + weight * targets) / (counts.sum(1, keepdims=True) + weight))
    joint = counts / max(1.0, counts.sum())
    apart = np.outer(joint.sum(1), joint.sum(0))
    return table, float(((joint - apart) * table).sum())


def _lag_slices(pairs: int, lag: int) -> tuple[slice, slice]:
    """Return the slice of sources that have a target at this lag, and the slice of those targets."""
    return slice(max(0, -lag), max(0, min(pairs, pairs - lag))), slice(max(0, lag), max(0, min(pairs, pairs + lag)))


def _find_in_block(
    number: int, source: LengthArray, target: LengthArray, table: NDArray[np.float64], gain: float
) -> Iterator[MisalignedSpan]:
    """Yield the spans of the best path that are not at lag 0 and clearly better than every other lag."""
    if all(_max_subarray_sum(_score_lag(source, target, table, lag)) < MIN_SUM for lag in LAGS):
        return
    scores = np.stack([_score_lag(source, target, table, lag).astype(np.float32) for lag in (0, *LAGS)], axis=1)
    path = _find_best_path(scores)
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    for first, last in pairwise(borders):
        lag, sums = int(path[first]), scores[first:last].sum(0, dtype=np.float64)
        total, next_best = sums[lag], np.delete(sums, lag)[1:].max()
        enough = last - first >= MIN_PAIRS and total >= max(MIN_SUM, MIN_GAIN_RATIO * gain * (last - first))
        if lag and enough and total - next_best >= MIN_SUM / 2:
            yield MisalignedSpan(number, first, last, (0, *LAGS)[lag], float(total))


def _score_lag(source: LengthArray, target: LengthArray, table: NDArray[np.float64], lag: int) -> NDArray[np.float64]:
    here, there = _lag_slices(len(source), lag)
    scores = np.zeros(len(source))
    scores[here] = table[source[here], target[there]] - table[source[here], target[here]]
    return scores


def _max_subarray_sum(scores: NDArray[np.float64]) -> float:
    """Return the largest sum of any contiguous span."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    return float((sums - np.minimum.accumulate(sums)).max())


def _find_best_path(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the column per row that maximises the sum, if every change of column costs MIN_SUM / 2."""
    cost = MIN_SUM / 2
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
