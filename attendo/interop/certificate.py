"""Certificate of a conversion: what was compared, the bounds, the verdict, and its JSON and table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

_TELLING = 5.0  # BLEU
_UNTOLD = "not told"


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


def json_of(certificate: "Certificate") -> dict[str, Any]:
    """All that it has, and what follows from that."""
    content = asdict(certificate)
    if certificate.scored is not None:
        content["scored"]["lost_bleu"] = certificate.scored.lost_bleu
    told: dict[str, Any] = _plain({"passed": certificate.passed, **content})
    return told


def _plain(value: Any) -> Any:
    """JSON has numbers alone: what is none is the text `nan` or `inf`."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def table_of(certificate: "Certificate") -> str:
    """A line for each number: its name, what was found, what is asked for."""
    rows = [
        ("sentences", f"{certificate.sentences:,}", ""),
        *_of_logits(certificate),
        *(row for each in certificate.searches for row in _of_search(certificate, each)),
        *_of_scores(certificate),
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {found:>{widths[1]}}  {bound}".rstrip() for name, found, bound in rows]
    verdict = "passed" if certificate.passed else f"FAILED: {'; '.join(certificate.reasons)}"
    parts = [[f"{certificate.theirs} beside {certificate.ours}"], lines, [*certificate.notes], [verdict]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def told_apart(found: float, bound: float | None, digits: int, kind: str) -> str:
    """With so many digits, or as many more as it takes to see on which side of the bound it lies."""
    if bound is None or found == bound:
        return f"{found:.{digits}{kind}}"
    tellings = ((f"{found:.{more}{kind}}", f"{bound:.{more}{kind}}") for more in count(digits))
    return next(told for told, other in tellings if told != other)


def _of_logits(certificate: "Certificate") -> list[tuple[str, str, str]]:
    bounds = certificate.bounds
    return [
        (f"{name} logit difference", _number(found, most), "" if most is None else f"at most {most:.0e}")
        for name, found, most in (
            ("mean", certificate.mean_difference, bounds.mean_difference),
            ("largest", certificate.largest_difference, bounds.largest_difference),
        )
    ]


def _of_search(certificate: "Certificate", each: "Compared") -> list[tuple[str, str, str]]:
    name = "greedy" if each.beam == 1 else f"beam {each.beam}"
    bounds = certificate.bounds
    least = bounds.same_tokens if certificate.judged_by == "same_tokens" else None
    asked_for = "" if least is None else f"at least {least:.1%}"
    return [
        (f"{name}: same tokens", told_apart(each.same_tokens, least, 2, "%"), asked_for),
        (f"{name}: same answers", f"{each.same_answers:,} of {certificate.sentences:,}", ""),
        (f"{name}: largest score difference", _number(each.score_difference), ""),
        (f"{name}: tokens/s, ours and theirs", f"{each.ours_per_second:,.0f} and {each.theirs_per_second:,.0f}", ""),
    ]


def _of_scores(certificate: "Certificate") -> list[tuple[str, str, str]]:
    scored, bounds, judged = certificate.scored, certificate.bounds, certificate.judged_by
    rows = []
    if certificate.agreement is not None:
        least = bounds.agreement if judged == "agreement" else None
        told = told_apart(certificate.agreement, least, 2, "f")
        rows.append(("BLEU of theirs with ours as references", told, "" if least is None else f"at least {least:g}"))
    if scored is None:
        return rows
    most = bounds.lost_bleu if judged == "lost_bleu" else None
    told, sentences = told_apart(scored.lost_bleu, most, 2, "f"), f"{scored.sentences:,}"
    return [
        *rows,
        (f"BLEU of {sentences}, ours and theirs", f"{scored.ours_bleu:.2f} and {scored.theirs_bleu:.2f}", ""),
        (f"chrF of {sentences}, ours and theirs", f"{scored.ours_chrf:.2f} and {scored.theirs_chrf:.2f}", ""),
        ("lost BLEU", told, "" if most is None else f"at most {most}"),
    ]


def _number(value: float | None, bound: float | None = None) -> str:
    return _UNTOLD if value is None else told_apart(value, bound, 1, "e")
