"""A certificate: two systems that hold the same model are asked the same, and what differs is measured and judged."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from attendo.errors import UsageError
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
class References:
    """What the first sources should have been answered with, and how ids read as text."""

    texts: Sequence[str]
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Bounds:
    """What is still the same model. None: only told.

    Where a loss of BLEU is bounded and there are references that our answers come near to, it is judged instead of the
    share of same tokens.
    """

    same_tokens: float | None = 0.995  # at least
    mean_difference: float | None = 1e-4  # of logits, at most
    largest_difference: float | None = None
    lost_bleu: float | None = None


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
    bounds: Bounds
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what else should be known, such as what a format could not take along

    @property
    def passed(self) -> bool:
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        lost = {} if self.scored is None else {"lost_bleu": self.scored.lost_bleu}
        content = asdict(self)
        return {"passed": self.passed, **content, "scored": content["scored"] and {**content["scored"], **lost}}

    def as_table(self) -> str:
        """Plain lines for a screen."""
        return table_of(self)


def certify(
    ours: Party,
    theirs: Party,
    sources: Sequence[Sequence[int]],
    bounds: Bounds,
    references: References | None = None,
) -> Certificate:
    """Ask both for logits, greedy answers and those of a beam of 4."""
    if not sources:
        raise UsageError("a certificate needs sentences: give some")
    found = {beam: _answered(ours, theirs, sources, beam) for beam in BEAMS}
    largest, mean = _logit_differences(ours, theirs, sources, [answer.ids for answer in found[1].ours])
    scored = _scored(found[BEAMS[-1]], references) if references is not None and references.texts else None
    searches = tuple(_compared(beam, both) for beam, both in found.items())
    reasons = tuple(_reasons(bounds, largest, mean, searches, scored))
    return Certificate(ours.name, theirs.name, len(sources), largest, mean, searches, scored, bounds, reasons)


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
        largest = max(largest, float(difference.max()))
        total += float(difference.sum(dtype=torch.float64))
        count += difference.numel()
    return largest, total / count


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
        score_difference=max(differences, default=None),
        ours_per_second=_tokens(both.ours) / both.our_seconds,
        theirs_per_second=_tokens(both.theirs) / both.their_seconds,
    )


def _tokens(answers: Sequence[Answer]) -> int:
    return sum(len(answer.ids) + 1 for answer in answers)


def _scored(both: _Both, references: References) -> Scored:
    from attendo.metrics import score

    count = len(references.texts)
    ours, theirs = ([references.decode(each.ids) for each in side[:count]] for side in (both.ours, both.theirs))
    values = [
        score(metric, outputs, references.texts).value for metric in ("bleu", "chrf") for outputs in (ours, theirs)
    ]
    return Scored(count, *values)


def _reasons(
    bounds: Bounds, largest: float | None, mean: float | None, searches: Sequence[Compared], scored: Scored | None
) -> Iterator[str]:
    for name, found, most in (
        ("mean", mean, bounds.mean_difference),
        ("largest", largest, bounds.largest_difference),
    ):
        # Put this way round, what is no number does not pass either.
        if found is not None and most is not None and not found <= most:
            yield f"the {name} difference of logits is {found:.2e}, more than {most:.0e}"
    if bounds.lost_bleu is not None and scored is not None and scored.telling:
        if not scored.lost_bleu <= bounds.lost_bleu:
            yield f"{scored.lost_bleu:.2f} BLEU are lost, more than {bounds.lost_bleu}"
        return
    for each in searches:
        if bounds.same_tokens is not None and not each.same_tokens >= bounds.same_tokens:
            name = "greedy" if each.beam == 1 else f"beam {each.beam}"
            yield f"{each.same_tokens:.2%} of the tokens of {name} are the same, fewer than {bounds.same_tokens:.1%}"
