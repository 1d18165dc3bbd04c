"""Request and response schemas of /generate and /score."""

from typing import Annotated, Any, Literal

from pydantic import Field

from attendo.serve.http.bodies import (
    Diversity,
    LengthPenalty,
    MinP,
    ModelName,
    Ngram,
    Normalise,
    Patience,
    PenaltyWeight,
    PositiveInt,
    RepetitionPenalty,
    RequestModel,
    ResponseModel,
    Seed,
    StopRule,
    Temperature,
    TopK,
    TopP,
    WordPenalty,
)
from attendo.text_model import ScoredTarget

Phrase = Annotated[str, Field(max_length=200)]
Phrases = Annotated[list[Phrase], Field(max_length=50)]
Symbols = Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=8)]
Factor = Annotated[float, Field(ge=0, le=10)]  # times the tokens of the source
Extra = Annotated[int, Field(ge=0, le=512)]
Number = float | None  # null: not finite


class DecodingOptions(RequestModel):
    """Every option of decoding, by the names of the command line. What is null is as the model has it.

    Those of the machine (engine, precision and the like) are for whoever runs the server. Numbers that cost memory or
    time are held against the limits of the server.
    """

    # how an answer is found
    like: Literal["fairseq", "hf", "ctranslate2", "marian"] | None = None
    beam: PositiveInt | None = None
    groups: PositiveInt | None = None
    diversity: Diversity | None = None
    stop: StopRule | None = None
    patience: Patience | None = None
    mbr: Literal["none", "chrf", "bleu"] | None = None
    mbr_candidates: Annotated[int, Field(ge=1, le=64)] | None = None
    n_best: PositiveInt | None = None
    distinct: bool | None = Field(None, description="no text twice among the hypotheses")

    # samples
    sample: bool | None = None
    seed: Seed | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    typical: TopP | None = None

    # how it is scored
    normalise: Normalise | None = None
    length_penalty: LengthPenalty | None = None
    word_penalty: WordPenalty | None = None
    coverage_penalty: PenaltyWeight | None = None
    counts_eos: bool | None = None

    # what is said
    prefix: str | list[str] | None = Field(None, description="how answers begin: one for all, or one for each text")
    constraints: Phrases | Annotated[list[Phrases], Field(max_length=50)] | None = Field(
        None, description="phrases that must be said: for all texts, or a list for each"
    )
    ban: Phrases | None = None
    no_repeat_ngram: Ngram | None = None
    repetition_penalty: RepetitionPenalty | None = None
    repetition_of: Literal["log_probabilities", "logits"] | None = None
    renormalise: bool | None = None
    allow_unk: bool | None = None
    source_prefix: Symbols | None = None
    target_prefix: Symbols | None = None

    # how long it is
    max_length: PositiveInt | None = None
    min_length: PositiveInt | None = None
    max_length_factor: Factor | None = None
    max_length_extra: Annotated[int, Field(ge=1, le=512)] | None = None
    min_length_factor: Factor | None = None
    min_length_extra: Extra | None = None
    at_limit: Literal["cut", "end", "free"] | None = None
    long_source: Literal["refuse", "cut"] | None = Field(
        None, description="of a source too long for the model, not the server: refuse it, or read its first tokens only"
    )
    split: bool | None = Field(
        None, description="answer each sentence by itself; by default where the model learned from single sentences"
    )

    alignments: bool | None = Field(None, description="tell where the network looked")

    def to_generate_options(self) -> dict[str, Any]:
        """As `TextModel.generate` takes them."""
        return {name: value for name in DecodingOptions.model_fields if (value := getattr(self, name)) is not None}


class GenerateRequest(DecodingOptions):
    """Several texts at once, or one that is told as it is decided."""

    model: ModelName | None = Field(None, description="by name; the first unless given")
    texts: Annotated[list[str], Field(min_length=1)]
    echo: bool = Field(False, description="of a model that goes on with texts: tell each text again before what is new")
    stream: bool = Field(False, description="of one text: server-sent events `text`, then `done`")


class SourceTargetPair(RequestModel):
    source: str
    target: str


class ScoreRequest(RequestModel):
    """How probable a model finds given answers."""

    model: ModelName | None = Field(None, description="by name; the first unless given")
    pairs: Annotated[list[SourceTargetPair], Field(min_length=1)]
    normalise: bool = Field(False, description="divide by the tokens, eos included")
    tokens: bool = Field(False, description="also of every token, eos included")


class ScoreParts(ResponseModel):
    """score = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: Number
    penalty: Number
    tokens: int
    divisor: Number
    reward: Number
    coverage: Number


class HypothesisResponse(ResponseModel):
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


class ResultResponse(HypothesisResponse):
    """The best hypothesis, all that were asked for, and the sentences that a long text was cut into.

    `source_left_out`: tokens at its end that were not read, because it was too long.
    """

    unknown: list[str] | None = None
    source_left_out: int | None = None
    hypotheses: list[HypothesisResponse] | None = None
    sentences: list[HypothesisResponse] | None = None
    unsplit: int | None = None


class GenerateResponse(ResponseModel):
    """In the order of the texts."""

    model: str
    results: list[ResultResponse]


class PairScore(ResponseModel):
    """The log-probability of the target, eos included; normalised, its mean over the tokens."""

    log_probability: Number
    tokens: int
    pieces: list[str] | None = None
    log_probabilities: list[Number] | None = None


class ScoreResponse(ResponseModel):
    """In the order of the pairs."""

    model: str
    scores: list[PairScore]


def score_to_dict(scored: ScoredTarget, normalise: bool, tokens: bool) -> dict[str, Any]:
    count = len(scored.pieces)
    content: dict[str, Any] = {
        "log_probability": scored.log_probability / (count if normalise else 1),
        "tokens": count,
    }
    if tokens:
        content |= {"pieces": scored.pieces, "log_probabilities": scored.log_probabilities}
    return content
