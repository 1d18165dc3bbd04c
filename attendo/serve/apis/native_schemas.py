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
Factor = Annotated[float, Field(ge=0, le=10)]  # multiple of the source length in tokens
Extra = Annotated[int, Field(ge=0, le=512)]
Number = float | None  # null if not finite


class DecodingOptions(RequestModel):
    """All decoding options, by their command line names. Null uses the model's setting.

    Engine, precision and similar options are configured on the server. Values that cost memory or time are checked
    against the server's limits.
    """

    # search
    like: Literal["fairseq", "hf", "ctranslate2", "marian"] | None = None
    beam: PositiveInt | None = None
    groups: PositiveInt | None = None
    diversity: Diversity | None = None
    stop: StopRule | None = None
    patience: Patience | None = None
    mbr: Literal["none", "chrf", "bleu"] | None = None
    mbr_candidates: Annotated[int, Field(ge=1, le=64)] | None = None
    n_best: PositiveInt | None = None
    distinct: bool | None = Field(None, description="return no text twice among the hypotheses")

    # sampling
    sample: bool | None = None
    seed: Seed | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: MinP | None = None
    typical: TopP | None = None

    # scoring
    normalise: Normalise | None = None
    length_penalty: LengthPenalty | None = None
    word_penalty: WordPenalty | None = None
    coverage_penalty: PenaltyWeight | None = None
    counts_eos: bool | None = None

    # content
    prefix: str | list[str] | None = Field(None, description="forced output prefix: one for all texts, or one each")
    constraints: Phrases | Annotated[list[Phrases], Field(max_length=50)] | None = Field(
        None, description="phrases that the output must contain: a list for all texts, or a list each"
    )
    ban: Phrases | None = None
    no_repeat_ngram: Ngram | None = None
    repetition_penalty: RepetitionPenalty | None = None
    repetition_of: Literal["log_probabilities", "logits"] | None = None
    renormalise: bool | None = None
    allow_unk: bool | None = None
    source_prefix: Symbols | None = None
    target_prefix: Symbols | None = None

    # length
    max_length: PositiveInt | None = None
    min_length: PositiveInt | None = None
    max_length_factor: Factor | None = None
    max_length_extra: Annotated[int, Field(ge=1, le=512)] | None = None
    min_length_factor: Factor | None = None
    min_length_extra: Extra | None = None
    at_limit: Literal["cut", "end", "free"] | None = None
    long_source: Literal["refuse", "cut"] | None = Field(
        None, description="source longer than the model (not the server) allows: reject it, or keep its first tokens"
    )
    split: bool | None = Field(
        None, description="generate sentence by sentence; the default for models trained on single sentences"
    )

    alignments: bool | None = Field(None, description="return cross-attention alignments")

    def to_generate_options(self) -> dict[str, Any]:
        """Return the given options by the names of `TextModel.generate`."""
        return {name: value for name in DecodingOptions.model_fields if (value := getattr(self, name)) is not None}


class GenerateRequest(DecodingOptions):
    """Texts to generate outputs for. `stream` requires a single text."""

    model: ModelName | None = Field(None, description="name of the model; by default the first")
    texts: Annotated[list[str], Field(min_length=1)]
    echo: bool = Field(False, description="decoder-only models: return the prompt before the new text")
    stream: bool = Field(False, description="one text only: send server-sent events `text`, then `done`")


class SourceTargetPair(RequestModel):
    source: str
    target: str


class ScoreRequest(RequestModel):
    """Pairs of source and target to score."""

    model: ModelName | None = Field(None, description="name of the model; by default the first")
    pairs: Annotated[list[SourceTargetPair], Field(min_length=1)]
    normalise: bool = Field(False, description="divide by the number of tokens, EOS included")
    tokens: bool = Field(False, description="also return the log-probability of every token, EOS included")


class ScoreParts(ResponseModel):
    """score = (log_probability + penalty) / divisor + reward + coverage."""

    log_probability: Number
    penalty: Number
    tokens: int
    divisor: Number
    reward: Number
    coverage: Number


class HypothesisResponse(ResponseModel):
    """A hypothesis. `cut` is true if the length limit was reached before the end.

    `alignments` are pairs of source and output tokens. `word_alignments` are pairs of whitespace-separated words.
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
    """The best hypothesis, all requested hypotheses, and the sentences that the text was split into.

    `source_left_out` is the number of tokens truncated at the end of a source that is too long.
    """

    unknown: list[str] | None = None
    source_left_out: int | None = None
    hypotheses: list[HypothesisResponse] | None = None
    sentences: list[HypothesisResponse] | None = None
    unsplit: int | None = None


class GenerateResponse(ResponseModel):
    """Results in the order of the texts."""

    model: str
    results: list[ResultResponse]


class PairScore(ResponseModel):
    """Log-probability of the target, EOS included. With `normalise`, its mean over the tokens."""

    log_probability: Number
    tokens: int
    pieces: list[str] | None = None
    log_probabilities: list[Number] | None = None


class ScoreResponse(ResponseModel):
    """Scores in the order of the pairs."""

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
