"""Rules for hallucinated outputs, and outputs with known faults to test the rules on.

An output is hallucinated if it is a loop or detached.

loop        rep-2(output) - rep-2(source) >= 0.2. rep-2 is the share of repeated bigrams: 1 - distinct / all, of words
            between spaces. The source is subtracted, because "go, go, go" is no fault of the model. On the annotated
            outputs of Guerreiro et al. (2023) this limit has a precision of 0.92 for repetitions, and a recall of 0.56.

detached    The output has nothing to do with its source, by two rules that must agree:
            1. contrast <= limit. The contrast is the mean log-probability per token (EOS included) of the output after
               its own source, minus the mean of the same after 4 other sources of the text. A judge computes it: a
               model that was not trained on the outputs. The limit is the 5% quantile of the contrasts of references
               of a validation text, so it needs no choice by hand.
            2. At least 5% of the references of other lines are as similar to the output (chrF) as its own reference.
            Rule 1 alone has 5% false alarms by its definition. Rule 2 alone calls a correct but different translation
            detached. A detached output passes rule 2 with probability 0.05, because its own reference is then one
            among others.

The sources of the contrast and the references of rule 2 are hashes of the line number. So they are the same for all
models, and the flags of two models are paired line by line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attendo import keyed_random
from attendo.metrics.pairwise import pairwise_chrf
from attendo.text_model import TextModel

LOOP_LIMIT = 0.2
REFERENCE_QUANTILE = 0.05  # contrasts of references at or below the limit
SIMILAR_SHARE = 0.05  # of other references that are as similar as the own one
OTHER_SOURCES = 4
_NEIGHBOURS = 50  # sources of similar length, from which the others are drawn
_OTHER_REFERENCES = 200
_CHUNK = 250  # outputs that are compared with references at once

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


def repeated_bigrams(text: str) -> float:
    """Return rep-2: the share of bigrams that occurred before in the text."""
    bigrams = list(pairwise(text.split()))
    return 1 - len(set(bigrams)) / len(bigrams) if bigrams else 0.0


def find_loops(sources: Sequence[str], outputs: Sequence[str]) -> Flags:
    """Return which outputs repeat themselves, and more than their source does."""
    pairs = zip(sources, outputs, strict=True)
    return np.array([repeated_bigrams(output) - repeated_bigrams(source) >= LOOP_LIMIT for source, output in pairs])


def find_detached(contrasts: Floats, limit: float, similar: Floats) -> Flags:
    """Return which outputs are detached. `similar` are the values of `share_of_similar`."""
    return (contrasts <= limit) & (similar >= SIMILAR_SHARE)


def contrast_limit(contrasts: Floats) -> float:
    """Return the limit of rule 1 from the contrasts of references."""
    return float(np.quantile(contrasts, REFERENCE_QUANTILE))


def share_of_similar(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """Return the share of 200 references of other lines with at least the chrF of the own reference.

    Equal references, such as "Nein.", are not other ones.
    """
    found = np.zeros(len(outputs))
    drawn = keyed_random.permutation(len(references), "others")[:_OTHER_REFERENCES].tolist()
    for first in range(0, len(outputs), _CHUNK):
        lines = range(first, min(first + _CHUNK, len(outputs)))
        chosen = [references[line] for line in drawn] + [references[line] for line in lines]
        chrf = pairwise_chrf([outputs[line] for line in lines], chosen)
        for row, line in enumerate(lines):
            own = chrf[row, len(drawn) + row]
            others = [chrf[row, column] for column, other in enumerate(drawn) if references[other] != references[line]]
            found[line] = np.mean(np.array(others) >= own) if others else 0.0
    return found


def draw_other_lines(sources: Sequence[str], count: int = OTHER_SOURCES) -> list[tuple[int, ...]]:
    """Return for each line other lines with a source of similar length but different text."""
    order = sorted(range(len(sources)), key=lambda line: (len(sources[line].split()), line))
    found: list[tuple[int, ...]] = [()] * len(sources)
    for rank, line in enumerate(order):
        first = max(0, min(rank - _NEIGHBOURS // 2, len(order) - _NEIGHBOURS - 1))
        near = [other for other in order[first : first + _NEIGHBOURS + 1] if sources[other] != sources[line]]
        chosen = keyed_random.permutation(len(near), "contrast", line).tolist()[:count]
        found[line] = tuple(near[number] for number in chosen)
    return found


def compute_contrasts(judge: TextModel, sources: Sequence[str], outputs: Sequence[str]) -> Floats:
    """Return the contrast of each output, in nats per token. A line without another source has contrast inf."""
    others = draw_other_lines(sources)
    own = score_per_token(judge, sources, outputs)
    pairs = [(line, other) for line, several in enumerate(others) for other in several]
    scored = score_per_token(judge, [sources[other] for _, other in pairs], [outputs[line] for line, _ in pairs])
    sums, counts = np.zeros(len(sources)), np.zeros(len(sources))
    lines = np.array([line for line, _ in pairs], np.int64)
    np.add.at(sums, lines, scored)
    np.add.at(counts, lines, 1)
    return np.where(counts > 0, own - sums / np.maximum(counts, 1), np.inf)


def score_per_token(model: TextModel, sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Return the mean log-probability of the tokens of each target, EOS included."""
    if not sources:
        return np.zeros(0)
    return np.array([np.mean(each.log_probabilities) for each in model.score_tokens(sources, targets)])


def _swap(references: Sequence[str], line: int, other: int) -> str:
    return references[other]


def _swap_second_half(references: Sequence[str], line: int, other: int) -> str:
    own, strange = references[line].split(), references[other].split()
    return " ".join([*own[: (len(own) + 1) // 2], *strange[len(strange) // 2 :]])


def _loop_end(references: Sequence[str], line: int, other: int) -> str:
    words = references[line].split()
    return " ".join([*words, *(3 * words[-2:])])


def _drop_second_half(references: Sequence[str], line: int, other: int) -> str:
    words = references[line].split()
    return " ".join(words[: (len(words) + 1) // 2])


@dataclass(frozen=True)
class Fault:
    """How the reference of a line is made faulty, and which rules should find it."""

    inject: Callable[[Sequence[str], int, int], str]
    expected: tuple[str, ...]


FAULTS = {
    "reference of another line": Fault(_swap, ("detached",)),
    "second half of another reference": Fault(_swap_second_half, ()),
    "last two words 4 times": Fault(_loop_end, ("loop",)),
    "second half is missing": Fault(_drop_second_half, ()),
}


def inject_fault(name: str, sources: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return the references with a fault. The other line of a line has a source of similar length."""
    others = draw_other_lines(sources, 1)
    found = []
    for line, several in enumerate(others):
        found.append(FAULTS[name].inject(references, line, several[0] if several else line))
    return found


def make_test_outputs(sources: Sequence[str], references: Sequence[str]) -> dict[str, list[str]]:
    """Return outputs with each fault, and right ones: paraphrases, and the references of lines that have none."""
    right = find_paraphrases(sources, references)
    paraphrases = [right.get(line, reference) for line, reference in enumerate(references)]
    return {**{name: inject_fault(name, sources, references) for name in FAULTS}, "paraphrases": paraphrases}


def find_paraphrases(sources: Sequence[str], references: Sequence[str]) -> dict[int, str]:
    """Return another reference of the same source for each line that has one: right, but different outputs."""
    by_source: dict[str, list[int]] = {}
    for line, source in enumerate(sources):
        by_source.setdefault(source, []).append(line)
    found = {}
    for lines in by_source.values():
        for line, other in zip(lines, [*lines[1:], lines[0]], strict=True):
            if references[other] != references[line]:
                found[line] = references[other]
    return found
