"""Default decoding settings of a model, stored in the model folder."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from attendo.errors import UsageError
from attendo.settings import Settings

MAX_ROWS = 1_000  # of a beam; each row has one number for every token of the vocabulary
MAX_FINISHED = 10_000  # finished hypotheses
MAX_TOKENS = 20_000  # of an answer; at 1,000 tokens/s this takes 20 s
_MAX_FACTOR = 100  # maximum target tokens per source token
_MAX_CANDIDATES = 1_000  # of MBR, which compares each candidate with all others
_MAX_SOURCE_TOKENS = 1_000_000  # tokens of a source or of a batch
_MAX_VOCAB_SIZE = 10_000_000
_MAX_SYMBOLS = 100  # of a prefix
_LARGE = 1e6  # beyond this, or below its inverse, fp32 overflows or loses differences
RowCount = Annotated[int, Field(ge=1, le=MAX_ROWS)]
CandidateCount = Annotated[int, Field(ge=1, le=_MAX_CANDIDATES)]
Natural = Annotated[int, Field(ge=0, le=_MAX_VOCAB_SIZE)]
Symbols = Annotated[tuple[str, ...], Field(max_length=_MAX_SYMBOLS)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Positive = Annotated[float, Field(gt=0, le=MAX_FINISHED)]
Scale = Annotated[float, Field(ge=1 / _LARGE, le=_LARGE)]
Weight = Annotated[float, Field(ge=0, le=_LARGE)]
Factor = Annotated[float, Field(ge=0, le=_MAX_FACTOR)]
Share = Annotated[float, Field(ge=1 / _LARGE, le=1)]
Exponent = Annotated[float, Field(ge=-10, le=10)]  # of the length in tokens


_CPU_BATCH_TOKENS, _GPU_BATCH_TOKENS = 4096, 32768


# Settings that need a source, with their neutral values. A model without a source rejects other values.
SOURCE_SETTINGS: dict[str, Any] = {
    "coverage_penalty": 0.0,
    "min_length_factor": 0.0,
    "max_length_factor": 0.0,
    "source_prefix": (),
    "long_source": "refuse",
}


class GenerationConfig(Settings):
    """Decoding defaults. `decode/ranking.py` has the formulas of the scores, `decode/beam.py` the stop rules."""

    beam: RowCount = Field(1, description="hypotheses followed side by side; 1 is greedy")
    groups: RowCount = Field(1, description="of a diverse beam; 1 is a plain one")
    diversity: Weight = Field(0.5, description="what a group loses for a token that an earlier group chose")
    normalise: Literal["none", "average", "gnmt", "reward"] = Field("average", description="score for the length")
    length_penalty: Exponent = Field(1.0, description="the exponent of average and gnmt, or the reward of a token")
    word_penalty: Annotated[float, Field(ge=-_LARGE, le=_LARGE)] = Field(
        0.0, description="what every token costs, before the score is made"
    )
    counts_eos: bool = Field(True, description="whether the end counts as a token of the length")
    stop: Literal["first", "settled", "exhaustive", "first_come", "leader", "shrinking"] = Field(
        "settled", description="when a beam has found enough"
    )
    patience: Positive = Field(1.0, description="stop rule first: this many times the beam must be finished")

    sample: bool = Field(False, description="draw tokens by chance instead of taking the best")
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = Field(1, description="of what is drawn")
    temperature: Scale = Field(1.0, description="below 1 more of the probable, above 1 more of the improbable")
    top_k: Natural = Field(0, description="draw from the k most probable tokens; 0 from all")
    top_p: Share = Field(1.0, description="draw from the fewest tokens that have this probability together")
    min_p: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="draw from tokens this share as probable as the best"
    )
    typical: Share = Field(1.0, description="draw from the fewest tokens nearest the entropy that have this together")

    no_repeat_ngram: Natural = Field(0, description="no sequence of so many tokens twice; 0 allows all")
    repetition_penalty: Scale = Field(1.0, description="above 1 makes tokens that were said less probable")
    repetition_of: Literal["log_probabilities", "logits"] = Field(
        "log_probabilities", description="what the repetition penalty multiplies"
    )
    renormalise: bool = Field(False, description="what may not be said leaves its probability to the rest")
    allow_unk: bool = Field(True, description="whether the unknown token may be said")
    coverage_penalty: Weight = Field(0.0, description="weight of source positions that were not looked at")

    min_length_factor: Factor = Field(0.0, description="the fewest tokens out: factor times the source's, plus extra")
    min_length_extra: Tokens = Field(0, description="see min_length_factor")
    max_length_factor: Factor = Field(2.0, description="the most tokens out: factor times the source's, plus extra")
    max_length_extra: Annotated[Tokens, Field(ge=1)] = Field(20, description="see max_length_factor")
    at_limit: Literal["cut", "end", "free"] = Field(
        "cut", description="an answer at its limit is cut, ends by force, or is free to end as it is"
    )
    source_prefix: Symbols = Field((), description="symbols put before every source, such as its language")
    target_prefix: Symbols = Field((), description="symbols that every answer begins with")
    max_source: Annotated[int, Field(ge=1, le=_MAX_SOURCE_TOKENS)] = Field(
        8192, description="the most tokens in: a longer source is refused, or split on request"
    )
    long_source: Literal["refuse", "cut"] = Field(
        "refuse",
        description="cut: of a source with more than max_source tokens the first are read, and the result says so",
    )

    mbr: Literal["none", "chrf", "bleu"] = Field("none", description="take the answer that agrees most with the others")
    mbr_candidates: CandidateCount = Field(32, description="samples that mbr chooses from; with a beam, what it found")

    batch_tokens: Natural = Field(
        0, description="source positions decoded side by side, once for each beam row; 0: 4,096, on a GPU 32,768"
    )
    engine: Literal["auto", "textbook", "cached", "fast"] = Field(
        "auto", description="cached, and fast on a GPU; all give the same answers"
    )
    compile: bool = Field(
        False, description="of the fast engine: up to a minute for each new size of a batch, and faster ever after"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field("auto", description="of the network; auto: as it is")

    def resolve_batch_tokens(self, on_gpu: bool) -> int:
        """Return `batch_tokens`, or the device's default if it is 0."""
        return self.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)

    def override(self, **options: Any) -> "GenerationConfig":
        """Return a copy with the options that are not None."""
        return self.replace(**{name: value for name, value in options.items() if value is not None})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.beam % self.groups:
            raise UsageError("beam_not_divisible_by_groups", groups=self.groups, beam=self.beam)
        if self.beam * self.patience > MAX_FINISHED:
            raise UsageError("beam_patience_too_large", limit=MAX_FINISHED, beam=self.beam, patience=self.patience)
        if self.sample and self.groups > 1:
            raise UsageError("sample_groups_conflict")
        return self
