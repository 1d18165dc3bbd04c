"""Lengths of sentences: lines that have slipped, pairs that are lopsided, sentences that are very long."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attendo.recipes.doctor.alignment import Slipped, find_slipped
from attendo.recipes.doctor.finding import MOST_EXAMPLES, Finding, counted, share
from attendo.recipes.doctor.left_out import Places
from attendo.recipes.doctor.reading import Stretch

LOPSIDED = 3.0  # times the usual ratio, either way
LOPSIDED_ABOVE = 10  # tokens of the longer side; in shorter pairs one word is enough for an odd ratio
MANY_LOPSIDED = 0.01
SLIPPED_TOO_FAR = 0.01  # share of slipped pairs that is a fault
LEAST_TO_TELL = 200  # pairs


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Lengths in tokens of neighbouring pairs of one corpus."""

    corpus: int
    first: int
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)


class Lengths:
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


def misaligned(lengths: Lengths, places: Places, related: bool = True) -> Finding:
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


def _unrelated(lengths: Lengths, places: Places, values: dict[str, int], related: bool) -> Finding:
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


def length_ratios(lengths: Lengths, places: Places) -> Finding:
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


def long_sentences(lengths: Lengths, places: Places, batch_tokens: int) -> Finding:
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
