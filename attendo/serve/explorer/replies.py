"""What the page is told of answers, steps, trees and heads, field by field, as the OpenAPI file has it."""

from typing import Any, Literal

from attendo.serve.fields import Told

Number = float | None  # None: it is not finite, or there is none


class Pieces(Told):
    pieces: list[str]


class PieceProbability(Told):
    piece: str
    log_probability: Number


class AnsweredToken(PieceProbability):
    id: int


class ScoreParts(Told):
    """score = (log_probability + penalties) / length_term + reward + coverage."""

    length_term: Number
    reward: Number
    penalties: Number
    coverage: Number
    tokens: int


class AnsweredHypothesis(Told):
    text: str
    pieces: list[str]
    tokens: list[AnsweredToken]
    log_probability: Number
    score: Number
    parts: ScoreParts
    cut: bool


class AnswerReply(Told):
    """Best first."""

    source: Pieces
    unknown: list[str]
    hypotheses: list[AnsweredHypothesis]
    alternatives: list[str]


class LikelyToken(Told):
    piece: str
    id: int
    probability: Number


class Step(Told):
    """A token of the answer, and what there was to choose from."""

    read: list[str]
    chosen: str
    chosen_id: int
    forced: bool
    probability: Number
    log_probability: Number
    entropy: Number
    eos: Number
    cache: int
    top: list[LikelyToken]


class StepsReply(Told):
    source: Pieces
    steps: list[Step]
    text: str
    ended: bool


Reason = Literal[
    "kept",
    "ended",
    "limit",
    "score",
    "score_ended",
    "pushed_out",
    "forbidden",
    "ngram",
    "not_chosen",
    "beyond_limit",
    "enough",
]


class TreeNode(Told):
    id: int
    parent: int | None
    group: int
    piece: str
    token: int | None
    token_log_probability: Number
    log_probability: Number
    value: Number
    score: Number
    kept: bool
    reason: Reason
    text: str


class RankedNode(Told):
    id: int
    text: str
    log_probability: Number
    score: Number
    reason: Reason


class TreeReply(Told):
    steps: list[list[TreeNode]]
    ranking: list[RankedNode]
    width: int


class Before(Told):
    text: str
    log_probability: Number
    tokens: list[PieceProbability]


class After(Before):
    cut: bool
    log_probability_of_old: Number


class AblateReply(Told):
    """`delta` is what the log-probability of the old answer changes by."""

    before: Before
    after: After
    delta: Number


class DescribedModel(Told):
    """What an exported model does not tell is null."""

    name: str
    direction: str | None
    task: str | None
    source_language: str | None
    target_language: str | None
    context_turns: int | None
    parameters: int | None
    config: dict[str, Any] | None
    encoder_layers: int | None
    decoder_layers: int | None
    heads: int | None
    checkpoints: list[str]
    has_training: bool
    samples: list[str]
    scores: dict[str, Any]
    generation: dict[str, Any]


class ModelsReply(Told):
    models: list[DescribedModel]


class TrainedStep(Told):
    step: int
    loss: Number
    learning_rate: Number
    tokens: Number
    seconds: Number


class TrainingReply(Told):
    """A validation has its step, its loss, and every score of the run by its name."""

    metrics: list[TrainedStep]
    every: int
    steps: int
    validations: list[dict[str, Number]]
    best: int | None


class CataloguedFormula(Told):
    id: str
    name: str
    text: str
    en: str
    zh: str
    symbols: dict[str, dict[str, str]]


class FormulasReply(Told):
    formulas: list[CataloguedFormula]
