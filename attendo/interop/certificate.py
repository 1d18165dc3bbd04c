"""A certificate: what was found when two systems that hold the same model were asked the same, and how it is judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from attendo.interop.certificate_json import json_of
from attendo.interop.certificate_table import table_of

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


def judged_by(bounds: Bounds, scored: Scored | None, agreement: float | None) -> str:
    if bounds.lost_bleu is not None and scored is not None and scored.telling:
        return "lost_bleu"
    return "agreement" if bounds.agreement is not None and agreement is not None else "same_tokens"
