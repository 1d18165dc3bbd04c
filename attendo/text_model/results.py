"""Results of generation and scoring: hypotheses, scores, alignments, and their JSON form."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_WEIGHT_DIGITS = 4  # of a weight of attention


@dataclass(frozen=True)
class HypothesisScore:
    """How a score came about: value = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: float  # of all tokens together, eos included unless the answer came to no end
    penalty: float = 0.0  # what rules and penalties added
    tokens: int = 0  # the length that counts
    divisor: float = 1.0  # what normalises for it
    reward: float = 0.0  # for it
    coverage: float = 0.0  # for source positions that were not looked at

    @property
    def value(self) -> float:
        return (self.log_probability + self.penalty) / self.divisor + self.reward + self.coverage


@dataclass(frozen=True)
class Alignment:
    """Where the network looked when it chose each token of an answer, by its alignment head (see `looking.aligned`)."""

    weights: Float[Tensor, "T S"]  # a row a token of the answer, a column a token of the source and one for its eos
    source_pieces: tuple[str, ...] = ()  # the tokens of the source
    source_words: tuple[int, ...] = ()  # of each the word that it belongs to, -1 where it belongs to none
    target_words: tuple[int, ...] = ()  # the same of each token of the answer

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """(source token, answer token), counted from 0; none where eos was looked at most."""
        looked_at = self.weights.argmax(dim=-1).tolist() if self.weights.numel() else []
        return tuple((source, n) for n, source in enumerate(looked_at) if source < self.weights.size(1) - 1)

    @property
    def word_links(self) -> tuple[tuple[int, int], ...]:
        """(source word, answer word), counted from 0: what any token of the answer word looked at.

        Words are what white space divides.
        """
        words = {(self.target_words[target], self.source_words[source]) for source, target in self.links}
        return tuple((source, target) for target, source in sorted(words) if source >= 0 and target >= 0)

    def __str__(self) -> str:
        """`0-0 1-2`, source token before answer token, as Pharaoh and Marian write it."""
        return format_pharaoh(self.links)


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """`0-0 1-2`, source before answer."""
    return " ".join(f"{source}-{target}" for source, target in links)


@dataclass(frozen=True)
class Hypothesis:
    """One way to answer. `ids` are without bos, eos and pad; `cut`: the limit came before the end, or forced it."""

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    parts: HypothesisScore
    cut: bool
    constraints: tuple[bool, ...] = ()  # of each that was asked for, whether the text holds it
    utility: float | None = None  # expected, where minimum Bayes risk chose
    alignment: Alignment | None = field(default=None, compare=False)  # where it was asked for
    end_forced: bool = False  # by the limit (at_limit "end"): what is cut in this way has eos in its score

    def __repr__(self) -> str:
        return f"Hypothesis({self.text!r}, score={self.score:.4f}{', cut' if self.cut else ''})"

    @property
    def has_end(self) -> bool:
        """Whether eos is part of its score."""
        return self.end_forced or not self.cut

    @property
    def score(self) -> float:
        """What ranks, greedy or not."""
        return self.parts.value

    @property
    def log_probability(self) -> float:
        return self.parts.log_probability


@dataclass(frozen=True)
class Result:
    """The answer to one text: the best hypothesis, and all that were kept, best first."""

    hypotheses: tuple[Hypothesis, ...]
    unknown: tuple[str, ...] = ()  # parts of the source that the vocabulary does not have
    sentences: tuple["Result", ...] = ()  # answers that were joined: the source was split into its sentences
    unsplit: int = 0  # sentences that were read as one, by a model that learned from single ones
    source_tokens: int = 0  # that the network read, eos left out
    source_left_out: int = 0  # tokens at the end of a source that was cut, because it was too long

    def __repr__(self) -> str:
        kept = f", {len(self.hypotheses)} hypotheses" if len(self.hypotheses) > 1 else ""
        joined = f", joined from {len(self.sentences)} sentences" if self.joined else ""
        return f"Result({self.text!r}, score={self.score:.4f}{', cut' if self.cut else ''}{kept}{joined})"

    @property
    def joined(self) -> bool:
        """Whether the text was split, so that the answer was put together from those to its sentences."""
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
    def constraints(self) -> tuple[bool, ...]:
        return self.best.constraints

    @property
    def alignment(self) -> Alignment | None:
        return self.best.alignment


EMPTY_RESULT = Result((Hypothesis("", (), (), HypothesisScore(0.0), False),))


def empty_result(num_constraints: int, with_alignment: bool) -> Result:
    """The answer to no text, which meets no constraint."""
    alignment = Alignment(torch.zeros(0, 1)) if with_alignment else None
    return Result((replace(EMPTY_RESULT.best, constraints=(False,) * num_constraints, alignment=alignment),))


@dataclass(frozen=True)
class ScoredTarget:
    """A given target, token by token."""

    pieces: tuple[str, ...]  # eos included
    log_probabilities: tuple[float, ...]  # of each, given all before it and the source

    @property
    def log_probability(self) -> float:
        return sum(self.log_probabilities, 0.0)


@dataclass(frozen=True)
class Alternative:
    """Another way to go on behind a prefix, and the whole answer that it leads to."""

    word: str  # that comes next; empty where the answer ends there
    log_probability: float  # of the token that begins it
    result: Result


def result_to_dict(result: Result, all_hypotheses: bool) -> dict[str, Any]:
    """The best hypothesis; `all_hypotheses`: with all of them. What there is none of is left out."""
    content = hypothesis_to_dict(result.best)
    if result.unknown:
        content["unknown"] = result.unknown
    if result.source_left_out:
        content["source_left_out"] = result.source_left_out
    if result.unsplit:
        content["unsplit"] = result.unsplit
    if result.sentences:
        content["sentences"] = [hypothesis_to_dict(each.best) for each in result.sentences]
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
