"""A certificate: two systems that hold the same model are asked the same, and what differs is measured and judged."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from attendo.errors import UsageError
from attendo.interop.certificate_json import json_of
from attendo.interop.certificate_table import table_of
from attendo.text import BOS, PAD

BEAMS = (1, 4)
_TOGETHER = 32  # sentences of like length that are answered in one call, with one limit
_LONGEST_ANSWER = 256
_TELLING = 5.0  # BLEU


@dataclass(frozen=True)
class Answer:
    """The best that a system found for a source."""

    ids: tuple[int, ...]  # without control tokens
    score: float | None  # sum of the log-probabilities it was chosen by, where the system tells it


@runtime_checkable
class Party(Protocol):
    """One of two systems that hold the same model. All ids are ours, without control tokens."""

    @property
    def name(self) -> str: ...

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        """[T+1, V]: behind bos and behind each target token, columns in our order. None where it cannot tell."""

    def answers(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[Answer]:
        """To each source; a beam of 1 is greedy. The limit counts eos, and at the limit any token may be the last."""


@dataclass(frozen=True)
class Reading:
    """How ids read as text, how many of the first sources say something, and what they should be answered with."""

    decode: Callable[[Sequence[int]], str]
    sentences: int
    references: Sequence[str] = ()  # of all of these, or of none


@dataclass(frozen=True)
class Bounds:
    """What is still the same model. None: only told.

    With fewer bits a model says another word where two are close. So it is judged by what its answers are worth, as far
    as that can be told: by the BLEU that they lose, where there are references; without these by the BLEU that they
    have with ours as references, where sources are sentences; else, and where ours are worth nothing, by the share of
    same tokens.
    """

    same_tokens: float | None = 0.995  # at least
    mean_difference: float | None = 1e-4  # of logits, at most
    largest_difference: float | None = None
    lost_bleu: float | None = None  # at most
    agreement: float | None = None  # BLEU with our answers as references, at least


@dataclass(frozen=True)
class Compared:
    """One way to search, by both."""

    beam: int
    same_tokens: float  # share of the places where both say the same
    same_answers: int
    score_difference: float | None  # the largest, of answers that are the same
    ours_per_second: float  # tokens, eos included
    theirs_per_second: float


@dataclass(frozen=True)
class Scored:
    """The beam's answers beside the references."""

    sentences: int
    ours_bleu: float
    theirs_bleu: float
    ours_chrf: float
    theirs_chrf: float

    @property
    def lost_bleu(self) -> float:
        return self.ours_bleu - self.theirs_bleu

    @property
    def telling(self) -> bool:
        """Answers that are worth nothing cannot lose anything."""
        return self.ours_bleu >= _TELLING


@dataclass(frozen=True)
class Certificate:
    """What was found, and why it does not pass, if it does not."""

    ours: str
    theirs: str
    sentences: int
    largest_difference: float | None  # of logits; None where the other system does not tell them
    mean_difference: float | None
    searches: tuple[Compared, ...]
    scored: Scored | None
    agreement: float | None  # BLEU of their beam's answers with ours as references; None where nothing is a sentence
    bounds: Bounds
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what else should be known, such as what a format could not take along

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def judged_by(self) -> str:
        """What decides beside the logits: `lost_bleu`, `agreement` or `same_tokens`."""
        return judged_by(self.bounds, self.scored, self.agreement)

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        return json_of(self)

    def as_table(self) -> str:
        """Plain lines for a screen."""
        return table_of(self)


def certify(
    ours: Party,
    theirs: Party,
    sources: Sequence[Sequence[int]],
    bounds: Bounds,
    reading: Reading | None = None,
) -> Certificate:
    """Ask both for logits, greedy answers and those of a beam of 4."""
    if not sources:
        raise UsageError("a certificate needs sentences: give some")
    found = {beam: _answered(ours, theirs, sources, beam) for beam in BEAMS}
    largest, mean = _logit_differences(ours, theirs, sources, [answer.ids for answer in found[1].ours])
    scored, agreement = _valued(found[BEAMS[-1]], reading) if reading and reading.sentences else (None, None)
    searches = tuple(_compared(beam, both) for beam, both in found.items())
    reasons = tuple(_reasons(bounds, largest, mean, searches, scored, agreement))
    return Certificate(
        ours=ours.name,
        theirs=theirs.name,
        sentences=len(sources),
        largest_difference=largest,
        mean_difference=mean,
        searches=searches,
        scored=scored,
        agreement=agreement,
        bounds=bounds,
        reasons=reasons,
    )


def judged_by(bounds: Bounds, scored: Scored | None, agreement: float | None) -> str:
    if bounds.lost_bleu is not None and scored is not None:
        return "lost_bleu" if scored.telling else "same_tokens"
    return "agreement" if bounds.agreement is not None and agreement is not None else "same_tokens"


@dataclass(frozen=True)
class _Both:
    """The answers of both in the order of the sources, and how long each took."""

    ours: list[Answer]
    theirs: list[Answer]
    our_seconds: float
    their_seconds: float


def _answered(ours: Party, theirs: Party, sources: Sequence[Sequence[int]], beam: int) -> _Both:
    answers: list[dict[int, Answer]] = [{}, {}]
    seconds = [0.0, 0.0]
    for party in (ours, theirs):
        party.answers([min(sources, key=len)], beam, 2)  # the first call sets things up
    for group, limit in _groups(sources):
        asked = [sources[n] for n in group]
        for side, party in enumerate((ours, theirs)):
            begin = time.perf_counter()
            told = party.answers(asked, beam, limit)
            seconds[side] += time.perf_counter() - begin
            answers[side] |= dict(zip(group, told, strict=True))
    first, second = ([each[n] for n in range(len(sources))] for each in answers)
    return _Both(first, second, *seconds)


def _groups(sources: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Sources of like length by their numbers, with the limit of their answers."""
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    for begin in range(0, len(order), _TOGETHER):
        group = order[begin : begin + _TOGETHER]
        yield group, min(_LONGEST_ANSWER, 10 + 3 * len(sources[group[-1]]) // 2)


def _logit_differences(
    ours: Party, theirs: Party, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[float | None, float | None]:
    """The largest and the mean; pad and bos, which are never said, are left out."""
    largest = total = count = 0.0
    for source, target in zip(sources, targets, strict=True):
        first, second = ours.logits(source, target), theirs.logits(source, target)
        if first is None or second is None:
            return None, None
        difference = (first.float().cpu() - second.float().cpu()).abs()
        said = torch.ones(difference.size(1), dtype=torch.bool)
        said[[PAD, BOS]] = False
        difference = difference[:, said]
        largest = _larger(largest, float(difference.max()))
        total += float(difference.sum(dtype=torch.float64))
        count += difference.numel()
    return largest, total / count


def _larger(one: float, other: float) -> float:
    """Of which neither can hide that the other is no number, as they can from `max`."""
    return other if other > one or math.isnan(other) else one


def _compared(beam: int, both: _Both) -> Compared:
    pairs = list(zip(both.ours, both.theirs, strict=True))
    same = sum(one == other for first, second in pairs for one, other in zip(first.ids, second.ids, strict=False))
    places = sum(max(len(first.ids), len(second.ids)) for first, second in pairs)
    alike = [(first, second) for first, second in pairs if first.ids == second.ids]
    differences = [
        abs(first.score - second.score)
        for first, second in alike
        if first.score is not None and second.score is not None
    ]
    return Compared(
        beam=beam,
        same_tokens=same / places if places else 1.0,
        same_answers=len(alike),
        score_difference=reduce(_larger, differences) if differences else None,
        ours_per_second=_tokens(both.ours) / both.our_seconds,
        theirs_per_second=_tokens(both.theirs) / both.their_seconds,
    )


def _tokens(answers: Sequence[Answer]) -> int:
    return sum(len(answer.ids) + 1 for answer in answers)


def _valued(both: _Both, reading: Reading) -> tuple[Scored | None, float]:
    from attendo.metrics import score

    count = reading.sentences
    ours, theirs = ([reading.decode(each.ids) for each in side[:count]] for side in (both.ours, both.theirs))
    agreement = score("bleu", theirs, ours).value
    if not reading.references:
        return None, agreement
    values = [
        score(metric, outputs, reading.references).value for metric in ("bleu", "chrf") for outputs in (ours, theirs)
    ]
    return Scored(count, *values), agreement


def _reasons(
    bounds: Bounds,
    largest: float | None,
    mean: float | None,
    searches: Sequence[Compared],
    scored: Scored | None,
    agreement: float | None,
) -> Iterator[str]:
    # All are put this way round: what is no number does not pass either.
    for name, found, most in (
        ("mean", mean, bounds.mean_difference),
        ("largest", largest, bounds.largest_difference),
    ):
        if found is not None and most is not None and not found <= most:
            yield f"the {name} difference of logits is {found:.2e}, more than {most:.0e}"
    match judged_by(bounds, scored, agreement):
        case "lost_bleu" if scored is not None and bounds.lost_bleu is not None:
            if not scored.lost_bleu <= bounds.lost_bleu:
                yield f"{scored.lost_bleu:.2f} BLEU are lost, more than {bounds.lost_bleu}"
        case "agreement" if agreement is not None and bounds.agreement is not None:
            if not agreement >= bounds.agreement:
                yield f"answers have {agreement:.1f} BLEU with ours as references, fewer than {bounds.agreement:g}"
        case _:
            yield from _too_few_tokens(bounds, searches)


def _too_few_tokens(bounds: Bounds, searches: Sequence[Compared]) -> Iterator[str]:
    for each in searches:
        if bounds.same_tokens is not None and not each.same_tokens >= bounds.same_tokens:
            name = "greedy" if each.beam == 1 else f"beam {each.beam}"
            yield f"{each.same_tokens:.2%} of the tokens of {name} are the same, fewer than {bounds.same_tokens:.1%}"
