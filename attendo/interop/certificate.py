"""Certificate of a conversion: measurements, bounds, verdict, and its form as JSON or table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from attendo.errors import LocalizedText, MessagePart, to_text
from attendo.interop.errors import join_reasons

if TYPE_CHECKING:
    from attendo.messages import Language

CERTIFICATE_FILE = "certificate.json"
_MIN_MEANINGFUL_BLEU = 5.0  # BLEU


@dataclass(frozen=True)
class SystemOutput:
    """Best hypothesis of a system for one source."""

    ids: tuple[int, ...]  # without control tokens
    score: float | None  # sum of the log-probabilities it was ranked by; None if the system returns none


@runtime_checkable
class ComparedSystem(Protocol):
    """One of two systems with the same model. All ids are attendo's, without control tokens."""

    @property
    def name(self) -> str: ...

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        """Return logits [T+1, V] after bos and after each target token, by attendo's ids; None if unavailable."""

    def generate(self, sources: Sequence[Sequence[int]], beam: int, max_length: int) -> list[SystemOutput]:
        """Return the best hypothesis per source. Beam 1 is greedy. The limit counts eos, which is not forced there."""


@runtime_checkable
class TokenScorer(Protocol):
    """A system that returns log-probabilities of given targets. They are compared if a system returns no logits."""

    def score_tokens(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-probability of each token of each target, and of eos."""


@dataclass(frozen=True)
class TextEvaluation:
    """Decoder of ids to text, the number of leading sources that are sentences, and their references."""

    decode: Callable[[Sequence[int]], str]
    sentences: int
    references: Sequence[str] = ()  # one per sentence, or none at all


@dataclass(frozen=True)
class Bounds:
    """Bounds within which a conversion passes. None: the value is reported, not checked.

    A quantised model may flip near-ties, so it is judged by BLEU rather than by token equality. `choose_criterion`
    picks the first criterion that applies:
    the lost BLEU, if there are references and attendo's own BLEU on them is meaningful;
    the BLEU with attendo's outputs as references, if the sources are sentences;
    the share of equal tokens.
    """

    same_tokens: float | None = 0.995  # minimum
    mean_difference: float | None = 1e-4  # of logits, or of token scores if there are no logits, maximum
    largest_difference: float | None = None  # of logits, maximum
    lost_bleu: float | None = None  # maximum
    agreement: float | None = None  # BLEU with attendo's outputs as references, minimum


@dataclass(frozen=True)
class SearchComparison:
    """Comparison of both systems for one beam size."""

    beam: int
    same_tokens: float  # share of positions with the same token
    same_answers: int
    score_difference: float | None  # the largest among equal outputs
    ours_per_second: float  # tokens, eos included
    theirs_per_second: float

    @property
    def name(self) -> str:
        return LocalizedText("greedy") if self.beam == 1 else LocalizedText("beam {size}", size=self.beam)


@dataclass(frozen=True)
class TokenScoreComparison:
    """Differences of the log-probabilities of the tokens of given targets."""

    tokens: int  # eos included
    longest: int  # tokens of the longest source or target
    largest_difference: float
    mean_difference: float


@dataclass(frozen=True)
class ReferenceScores:
    """Scores of the beam outputs against the references."""

    sentences: int
    ours_bleu: float
    theirs_bleu: float
    ours_chrf: float
    theirs_chrf: float

    @property
    def lost_bleu(self) -> float:
        return self.ours_bleu - self.theirs_bleu

    @property
    def is_meaningful(self) -> bool:
        """True if attendo's own BLEU is high enough to measure a loss."""
        return self.ours_bleu >= _MIN_MEANINGFUL_BLEU


@dataclass(frozen=True)
class Certificate:
    """Result of a comparison, with the reasons if it fails."""

    ours: str
    theirs: str
    sentences: int
    largest_difference: float | None  # of logits; None if a system returns no logits
    mean_difference: float | None
    searches: tuple[SearchComparison, ...]
    scored: ReferenceScores | None
    agreement: float | None  # BLEU of their beam outputs with attendo's as references; None without sentences
    bounds: Bounds
    reasons: tuple[MessagePart, ...] = ()
    notes: tuple[MessagePart, ...] = ()  # other remarks, such as settings that the format cannot store
    token_scores: TokenScoreComparison | None = None  # only if a system returns no logits

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def criterion(self) -> str:
        """The criterion checked in addition to the logits: `lost_bleu`, `agreement` or `same_tokens`."""
        return choose_criterion(self.bounds, self.scored, self.agreement)

    def as_json(self) -> dict[str, Any]:
        """Return all fields, `passed` and the lost BLEU, for `json.dumps`. Reasons and notes are in English."""
        content = {"passed": self.passed, **asdict(self)}
        if self.scored is not None:
            content["scored"]["lost_bleu"] = self.scored.lost_bleu
        return {name: _to_json(value) for name, value in content.items()}

    def as_table(self, language: "Language" = "en") -> str:
        """Return a plain-text table with one line per value: name, value, bound."""
        from rich.cells import cell_len

        rows = [
            (LocalizedText("sentences"), f"{self.sentences:,}", ""),
            *_logit_rows(self),
            *(row for each in self.searches for row in _search_rows(self, each)),
            *_score_rows(self),
        ]
        cells = [[str(to_text(cell, language)) for cell in row] for row in rows]
        widths = [max(cell_len(row[column]) for row in cells) for column in (0, 1)]
        rooms = [[" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=False)] for row in cells]
        lines = [
            f"{name}{left}  {right}{found}  {bound}".rstrip()
            for (name, found, bound), (left, right) in zip(cells, rooms, strict=True)
        ]
        title = LocalizedText("{theirs} beside {ours}", theirs=self.theirs, ours=self.ours)
        verdict = LocalizedText("FAILED: {reasons}", reasons=join_reasons(self.reasons))
        ending = LocalizedText("passed") if self.passed else verdict
        parts = [
            [title.text(language)],
            lines,
            [note.text(language) for note in self.notes],
            [ending.text(language)],
        ]
        return "\n\n".join("\n".join(part) for part in parts if part)


def choose_criterion(bounds: Bounds, scored: ReferenceScores | None, agreement: float | None) -> str:
    if bounds.lost_bleu is not None and scored is not None and scored.is_meaningful:
        return "lost_bleu"
    return "agreement" if bounds.agreement is not None and agreement is not None else "same_tokens"


def _to_json(value: Any) -> Any:
    """Replace messages by their text, and NaN and infinity by `nan` and `inf`, because JSON has no numbers for them."""
    if isinstance(value, dict):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    is_text = isinstance(value, MessagePart) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


def format_beside_bound(value: float, bound: float | None, digits: int, format_code: str) -> str:
    """Format with `digits` digits, or with more if value and bound would look equal."""
    if bound is None or value == bound:
        return f"{value:.{digits}{format_code}}"
    formatted = ((f"{value:.{more}{format_code}}", f"{bound:.{more}{format_code}}") for more in count(digits))
    return next(text for text, other in formatted if text != other)


def _logit_rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    bounds, scores = certificate.bounds, certificate.token_scores
    if scores is not None:
        most = bounds.mean_difference
        return [
            (LocalizedText("token scores compared"), f"{scores.tokens:,}", ""),
            (
                LocalizedText("mean token score difference"),
                _format_number(scores.mean_difference, most),
                _at_most(most, ".0e"),
            ),
            (LocalizedText("largest token score difference"), _format_number(scores.largest_difference), ""),
        ]
    return [
        (LocalizedText(name), _format_number(found, most), _at_most(most, ".0e"))
        for name, found, most in (
            ("mean logit difference", certificate.mean_difference, bounds.mean_difference),
            ("largest logit difference", certificate.largest_difference, bounds.largest_difference),
        )
    ]


def _search_rows(certificate: Certificate, search: SearchComparison) -> list[tuple[str, str, str]]:
    name, bounds = search.name, certificate.bounds
    least = bounds.same_tokens if certificate.criterion == "same_tokens" else None
    required = "" if least is None else LocalizedText("at least {value}", value=f"{least:.1%}")
    answers = LocalizedText("{same:,} of {all:,}", same=search.same_answers, all=certificate.sentences)
    speeds = _ours_and_theirs(f"{search.ours_per_second:,.0f}", f"{search.theirs_per_second:,.0f}")
    same = format_beside_bound(search.same_tokens, least, 2, "%")
    return [
        (LocalizedText("{search}: same tokens", search=name), same, required),
        (LocalizedText("{search}: same answers", search=name), answers, ""),
        (LocalizedText("{search}: largest score difference", search=name), _format_number(search.score_difference), ""),
        (LocalizedText("{search}: tokens/s, ours and theirs", search=name), speeds, ""),
    ]


def _score_rows(certificate: Certificate) -> list[tuple[str, str, str]]:
    scored, bounds, criterion = certificate.scored, certificate.bounds, certificate.criterion
    rows: list[tuple[str, str, str]] = []
    if certificate.agreement is not None:
        least = bounds.agreement if criterion == "agreement" else None
        value = format_beside_bound(certificate.agreement, least, 2, "f")
        required = "" if least is None else LocalizedText("at least {value}", value=f"{least:g}")
        rows.append((LocalizedText("BLEU of theirs with ours as references"), value, required))
    if scored is None:
        return rows
    most = bounds.lost_bleu if criterion == "lost_bleu" else None
    value, sentences = format_beside_bound(scored.lost_bleu, most, 2, "f"), f"{scored.sentences:,}"
    return [
        *rows,
        (
            LocalizedText("BLEU of {sentences}, ours and theirs", sentences=sentences),
            _ours_and_theirs(f"{scored.ours_bleu:.2f}", f"{scored.theirs_bleu:.2f}"),
            "",
        ),
        (
            LocalizedText("chrF of {sentences}, ours and theirs", sentences=sentences),
            _ours_and_theirs(f"{scored.ours_chrf:.2f}", f"{scored.theirs_chrf:.2f}"),
            "",
        ),
        (LocalizedText("lost BLEU"), value, _at_most(most, "")),
    ]


def _at_most(value: float | None, format_code: str) -> str:
    return "" if value is None else LocalizedText("at most {value}", value=f"{value:{format_code}}")


def _ours_and_theirs(ours: str, theirs: str) -> LocalizedText:
    return LocalizedText("{ours} and {theirs}", ours=ours, theirs=theirs)


def _format_number(value: float | None, bound: float | None = None) -> str:
    return LocalizedText("not available") if value is None else format_beside_bound(value, bound, 1, "e")
