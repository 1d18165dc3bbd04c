"""What programs are told, field by field; what was not asked for is left out."""

from typing import Any

from attendo.serve.fields import Told
from attendo.text_model import ScoredTarget

Number = float | None  # null: not finite


class ScoreParts(Told):
    """score = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: Number
    penalty: Number
    tokens: int
    divisor: Number
    reward: Number
    coverage: Number


class HypothesisReply(Told):
    """`cut`: the length limit came before the end.

    `alignments` are pairs of source token and answer token, `word_alignments` of words that white space divides.
    """

    text: str
    score: Number
    parts: ScoreParts
    pieces: list[str]
    ids: list[int]
    cut: bool
    constraints: list[bool] | None = None
    utility: Number = None
    alignments: list[tuple[int, int]] | None = None
    word_alignments: list[tuple[int, int]] | None = None
    source_pieces: list[str] | None = None
    attention: list[list[float]] | None = None


class ResultReply(HypothesisReply):
    """The best hypothesis, all that were asked for, and the sentences that a long text was cut into.

    `source_left_out`: tokens at its end that were not read, because it was too long.
    """

    unknown: list[str] | None = None
    source_left_out: int | None = None
    hypotheses: list[HypothesisReply] | None = None
    sentences: list[HypothesisReply] | None = None
    unsplit: int | None = None


class GenerateReply(Told):
    """In the order of the texts."""

    model: str
    results: list[ResultReply]


class PairScore(Told):
    """The log-probability of the target, eos included; normalised, its mean over the tokens."""

    log_probability: Number
    tokens: int
    pieces: list[str] | None = None
    log_probabilities: list[Number] | None = None


class ScoreReply(Told):
    """In the order of the pairs."""

    model: str
    scores: list[PairScore]


def score_told(scored: ScoredTarget, normalise: bool, tokens: bool) -> dict[str, Any]:
    count = len(scored.pieces)
    content: dict[str, Any] = {
        "log_probability": scored.log_probability / (count if normalise else 1),
        "tokens": count,
    }
    if tokens:
        content |= {"pieces": scored.pieces, "log_probabilities": scored.log_probabilities}
    return content
