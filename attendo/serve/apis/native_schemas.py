"""Request and response schemas of /generate and /score."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model

from attendo.decode.config import GenerationConfig
from attendo.serve.http.bodies import DecodingRequest, ModelName, RequestModel, ResponseModel, decoding_fields
from attendo.text_model import GenerateOptions, ScoredTarget

Phrase = Annotated[str, Field(max_length=200)]
Phrases = Annotated[list[Phrase], Field(max_length=50)]
Number = float | None  # null if not finite
_SERVER_OPTIONS = ("engine", "compile", "precision", "batch_tokens", "max_source")  # configured on the server
_JSON_TYPES = {
    "prefix": str | list[str],
    "constraints": Phrases | Annotated[list[Phrases], Field(max_length=50)],
    "banned_phrases": Phrases,
}

if TYPE_CHECKING:

    class _DeclaredOptions(DecodingRequest):
        alignments: bool | None
        n_best: int | None

else:
    _DeclaredOptions = create_model(
        "_DeclaredOptions",
        __base__=DecodingRequest,
        **decoding_fields(
            [
                *(each.name for each in dataclasses.fields(GenerateOptions)),
                *(name for name in GenerationConfig.model_fields if name not in _SERVER_OPTIONS),
            ],
            _JSON_TYPES,
        ),
    )


class DecodingOptions(_DeclaredOptions):
    """All decoding options, by their command line names. Null uses the model's setting.

    Engine, precision and similar options are configured on the server. Values that cost memory or time are checked
    against the server's limits.
    """

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
