"""Results of generation and scoring: hypotheses, scores, alignments, and their JSON form."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.metrics.faults import Fault, FaultKind
from attendo.text_model.segment_map import TextSegment

_WEIGHT_DIGITS = 4  # decimals of an attention weight


@dataclass(frozen=True)
class HypothesisScore:
    """Terms of a score: value = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: float  # of all tokens, eos included unless the output was cut before it
    penalty: float = 0.0  # added by rules and penalties
    tokens: int = 0  # length used for normalisation
    divisor: float = 1.0  # length normalisation
    reward: float = 0.0  # length reward
    coverage: float = 0.0  # coverage penalty for source positions with little attention

    @property
    def value(self) -> float:
        return (self.log_probability + self.penalty) / self.divisor + self.reward + self.coverage


@dataclass(frozen=True)
class Alignment:
    """Attention weights from each output token to the source (see `alignment.align`)."""

    weights: Float[Tensor, "T S"]  # one row per output token; one column per source token and one for eos
    source_pieces: tuple[str, ...] = ()  # source tokens
    source_words: tuple[int, ...] = ()  # word index of each source token, -1 if it belongs to none
    target_words: tuple[int, ...] = ()  # word index of each output token

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """(source token, output token), counted from 0. Tokens that attend most to eos have no link."""
        looked_at = self.weights.argmax(dim=-1).tolist() if self.weights.numel() else []
        return tuple((source, n) for n, source in enumerate(looked_at) if source < self.weights.size(1) - 1)

    @property
    def word_links(self) -> tuple[tuple[int, int], ...]:
        """(source word, output word), counted from 0, from the links of all tokens of the output word.

        Words are separated by white space.
        """
        words = {(self.target_words[target], self.source_words[source]) for source, target in self.links}
        return tuple((source, target) for target, source in sorted(words) if source >= 0 and target >= 0)

    def __str__(self) -> str:
        """Format as `0-0 1-2`, source token first, as Pharaoh and Marian do."""
        return format_pharaoh(self.links)


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Format links as `0-0 1-2`, source first."""
    return " ".join(f"{source}-{target}" for source, target in links)


@dataclass(frozen=True)
class Hypothesis:
    """One output. `ids` exclude bos, eos and pad.

    `cut` is True if the length limit was reached before eos, or forced eos.
    """

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    parts: HypothesisScore
    cut: bool
    constraints: tuple[bool, ...] = ()  # whether the text contains each required phrase
    utility: float | None = None  # expected utility, with minimum Bayes risk
    alignment: Alignment | None = field(default=None, compare=False)  # if requested
    end_forced: bool = False  # eos was forced by the limit (at_limit "force_eos"); the score includes it

    def __repr__(self) -> str:
        return f"Hypothesis({self.text!r}, score={self.score:.4f}{', cut' if self.cut else ''})"

    @property
    def has_end(self) -> bool:
        """Whether the score includes eos."""
        return self.end_forced or not self.cut

    @property
    def score(self) -> float:
        """The ranking score."""
        return self.parts.value

    @property
    def log_probability(self) -> float:
        return self.parts.log_probability


@dataclass(frozen=True)
class TermReport:
    """Whether an output has a glossary term or a kept text of its source."""

    kind: Literal["glossary", "placeholder", "url", "email", "number", "do_not_translate"]
    source: str  # as in the source
    source_span: tuple[int, int]  # the first character and the one after the last
    target: str  # the term of the glossary, or the kept text
    target_span: tuple[int, int] | None  # in the output; None if the term is not met
    reason: Literal["", "vocabulary", "banned", "length", "search"] = ""  # why a term is not met

    @property
    def met(self) -> bool:
        return self.target_span is not None

    def shift(self, source: int, target: int) -> "TermReport":
        """Return the report with positions that are larger by these numbers of characters."""
        (begin, end), span = self.source_span, self.target_span
        moved = None if span is None else (span[0] + target, span[1] + target)
        return replace(self, source_span=(begin + source, end + source), target_span=moved)


@dataclass(frozen=True)
class Repair:
    """An attempt to replace an output with faults. `kept`: a new output had fewer faults and replaced the old one."""

    by: str  # rules, candidates or split
    faults_before: tuple[FaultKind, ...]
    faults_after: tuple[FaultKind, ...]  # of the best new output
    kept: bool


@dataclass(frozen=True)
class CheckReport:
    """The faults of an output, worst first, and what was done about them."""

    faults: tuple[Fault, ...] = ()
    confidence: float | None = None  # None without `attendo calibrate`
    repairs: tuple[Repair, ...] = ()

    @property
    def serious(self) -> tuple[FaultKind, ...]:
        """The kinds of the faults that are not mere hints."""
        return tuple(each.kind for each in self.faults if not each.is_hint)

    def to_dict(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "faults": [each.to_dict() for each in self.faults],
            "confidence": self.confidence,
        }
        if self.repairs:
            content["repairs"] = [asdict(each) for each in self.repairs]
        return content


@dataclass(frozen=True)
class Result:
    """The result for one text: hypotheses, best first."""

    hypotheses: tuple[Hypothesis, ...]
    unknown: tuple[str, ...] = ()  # parts of the source that are not in the vocabulary
    sentences: tuple["Result", ...] = ()  # results per sentence, if the source was split into sentences
    unsplit: int = 0  # sentences kept as one source although the model was trained on single sentences
    source_tokens: int = 0  # tokens that the network read, without eos
    source_left_out: int = 0  # tokens cut from the end of a source that was too long
    terms: tuple[TermReport, ...] = ()  # glossary terms and kept texts, of the best hypothesis
    report: CheckReport | None = None  # with `check`
    segments: tuple[TextSegment, ...] = ()  # which part of the text belongs to which part of the source

    def __repr__(self) -> str:
        count = f", {len(self.hypotheses)} hypotheses" if len(self.hypotheses) > 1 else ""
        joined = f", joined from {len(self.sentences)} sentences" if self.joined else ""
        return f"Result({self.text!r}, score={self.score:.4f}{', cut' if self.cut else ''}{count}{joined})"

    @property
    def joined(self) -> bool:
        """Whether the source was split and the result joined from its sentences."""
        return bool(self.sentences)

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def score(self) -> float:
        return self.best.score

    @property
    def log_probability(self) -> float:
        return self.best.log_probability

    @property
    def ids(self) -> tuple[int, ...]:
        return self.best.ids

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.best.pieces

    @property
    def cut(self) -> bool:
        return self.best.cut

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Faults of the best hypothesis, worst first. Empty without `check`."""
        return self.report.faults if self.report else ()

    @property
    def confidence(self) -> float | None:
        """Share of validation outputs of similar length with a lower mean log-probability. None if unknown."""
        return self.report.confidence if self.report else None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What check="repair" did."""
        return self.report.repairs if self.report else ()

    @property
    def constraints(self) -> tuple[bool, ...]:
        return self.best.constraints

    @property
    def alignment(self) -> Alignment | None:
        return self.best.alignment


EMPTY_RESULT = Result((Hypothesis("", (), (), HypothesisScore(0.0), False),))


def empty_result(num_constraints: int, with_alignment: bool) -> Result:
    """Return the result of a blank text, which meets no constraint."""
    alignment = Alignment(torch.zeros(0, 1)) if with_alignment else None
    return Result((replace(EMPTY_RESULT.best, constraints=(False,) * num_constraints, alignment=alignment),))


@dataclass(frozen=True)
class ScoredTarget:
    """The log-probabilities of a given target, token by token."""

    pieces: tuple[str, ...]  # eos included
    log_probabilities: tuple[float, ...]  # of each token, given the source and the previous tokens

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities, 0.0)


@dataclass(frozen=True)
class Alternative:
    """A next word after a prefix, and the complete output that starts with it."""

    word: str  # the next word; empty if the output ends
    log_probability: float  # of its first token
    result: Result


def result_to_dict(result: Result, all_hypotheses: bool) -> dict[str, Any]:
    """Return the best hypothesis as a dict, with the others if `all_hypotheses`. Empty fields are omitted."""
    content = hypothesis_to_dict(result.best)
    if result.unknown:
        content["unknown"] = result.unknown
    if result.source_left_out:
        content["source_left_out"] = result.source_left_out
    if result.unsplit:
        content["unsplit"] = result.unsplit
    if result.terms:
        content["terms"] = [{**asdict(each), "met": each.met} for each in result.terms]
    if result.report is not None:
        content |= result.report.to_dict()
    if result.sentences:
        content["sentences"] = [hypothesis_to_dict(each.best) for each in result.sentences]
        content["segments"] = [asdict(each) for each in result.segments]
    if all_hypotheses:
        content["hypotheses"] = [hypothesis_to_dict(each) for each in result.hypotheses]
    return content


def hypothesis_to_dict(hypothesis: Hypothesis) -> dict[str, Any]:
    content: dict[str, Any] = {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "parts": asdict(hypothesis.parts),
        "pieces": hypothesis.pieces,
        "ids": hypothesis.ids,
        "cut": hypothesis.cut,
    }
    if hypothesis.constraints:
        content["constraints"] = hypothesis.constraints
    if hypothesis.utility is not None:
        content["utility"] = hypothesis.utility
    if hypothesis.alignment is not None:
        content["alignments"] = hypothesis.alignment.links
        content["word_alignments"] = hypothesis.alignment.word_links
        content["source_pieces"] = hypothesis.alignment.source_pieces
        content["attention"] = [
            [round(weight, _WEIGHT_DIGITS) for weight in row] for row in hypothesis.alignment.weights.tolist()
        ]
    return content
