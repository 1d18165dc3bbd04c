"""Request and response schemas of the explorer page's endpoints."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from attendo.serve.http.bodies import (
    DecodingRequest,
    ModelName,
    NonNegativeInt,
    RequestModel,
    ResponseModel,
    decoding_fields,
)

HeadScale = Annotated[float, Field(ge=0, le=10)]
PieceOrId = Annotated[str, Field(max_length=200)] | NonNegativeInt
_BEAM_OPTIONS = ("beam", "beam_groups", "diversity_penalty", "stop", "patience")
_SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed")
_OTHER_OPTIONS = (
    *("max_length", "min_length", "normalise", "length_penalty", "word_penalty"),
    *("no_repeat_ngram_size", "repetition_penalty"),
)
_MAX_ROWS, _MAX_TOKENS = 12, 512  # the page draws every row of a beam and every token
Number = float | None  # None: not finite, or missing
Matrix = list[list[Number]]


if TYPE_CHECKING:
    _DeclaredOptions = DecodingRequest
else:
    _DeclaredOptions = create_model(
        "_DeclaredOptions",
        __base__=DecodingRequest,
        **decoding_fields(
            (*_BEAM_OPTIONS, *_SAMPLING_OPTIONS, *_OTHER_OPTIONS),
            **dict.fromkeys(("beam", "beam_groups"), _MAX_ROWS),
            **dict.fromkeys(("max_length", "min_length"), _MAX_TOKENS),
        ),
    )


class ExplorerDecodingOptions(_DeclaredOptions):
    """Decoding options by their command line names. Null uses the model's setting."""

    kind: Literal["greedy", "beam", "sample"] = "greedy"
    n_best: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = 1

    def to_generate_options(self) -> dict[str, Any]:
        """Return the options that apply to this kind, by the names of `TextModel.generate`."""
        given = {name: each for name, each in self.model_dump(exclude={"kind"}).items() if each is not None}
        if self.kind != "sample":
            given = {name: each for name, each in given.items() if name not in _SAMPLING_OPTIONS}
        if self.kind != "beam":
            given = {name: each for name, each in given.items() if name not in _BEAM_OPTIONS}
            plain = {"beam": 1, "beam_groups": 1, "mbr": "none", "sample": self.kind == "sample"}
            return {**given, **plain, "n_best": self.n_best if self.kind == "sample" else 1}
        beam = given.setdefault("beam", 4)
        if given.get("beam_groups", 1) == 1:
            given.pop("diversity_penalty", None)
        if given.get("stop") != "first" or given.get("beam_groups", 1) > 1:
            given.pop("patience", None)
        return {**given, "n_best": min(self.n_best, beam), "mbr": "none", "sample": False}


class ModelTextRequest(RequestModel):
    """Request about one text and one model."""

    model: ModelName | None = None
    checkpoint: Annotated[str, Field(max_length=100)] | None = None
    text: str
    decoder: ExplorerDecodingOptions = ExplorerDecodingOptions()


class ScaledHeadsRequest(ModelTextRequest):
    """Request with scaled attention heads: {"decoder.0.cross": {"3": 0.0}}."""

    heads: dict[str, dict[str, HeadScale]] = Field(default_factory=dict, max_length=1000)


class TargetRequest(ScaledHeadsRequest):
    """Request about a source and a target. Without `target`, the model generates it with `decoder`."""

    target: str | None = None


class AnswerRequest(ScaledHeadsRequest):
    prefix: Annotated[list[PieceOrId], Field(max_length=512)] | None = None
    alternatives: Annotated[int, Field(ge=0, le=8)] = 3
    stream: bool = False


class TraceRequest(TargetRequest):
    masked: bool = True
    layers: Annotated[list[NonNegativeInt], Field(max_length=1000)] | None = None


class StepsRequest(ScaledHeadsRequest):
    prefix: Annotated[list[PieceOrId], Field(max_length=512)] = Field(default_factory=list)


class TreeRequest(ScaledHeadsRequest):
    pass


class MaskRequest(TargetRequest):
    layer: NonNegativeInt = 0
    head: NonNegativeInt = 0


class LedgerRequest(TargetRequest):
    masked: bool = True
    step: NonNegativeInt | None = None


class AblateRequest(TargetRequest):
    pass


class RankRequest(TargetRequest):
    pass


PAGE_REQUESTS = (
    AnswerRequest,
    TraceRequest,
    StepsRequest,
    TreeRequest,
    MaskRequest,
    LedgerRequest,
    AblateRequest,
    RankRequest,
)


class SourcePieces(ResponseModel):
    pieces: list[str]


class PieceProbability(ResponseModel):
    piece: str
    log_probability: Number


class GeneratedToken(PieceProbability):
    id: int


class ScoreTerms(ResponseModel):
    """score = (log_probability + penalties) / length_term + reward + coverage."""

    length_term: Number
    reward: Number
    penalties: Number
    coverage: Number
    tokens: int


class GeneratedHypothesis(ResponseModel):
    text: str
    pieces: list[str]
    tokens: list[GeneratedToken]
    log_probability: Number
    score: Number
    parts: ScoreTerms
    cut: bool


class AnswerResponse(ResponseModel):
    """Hypotheses, best first, and alternative texts."""

    source: SourcePieces
    unknown: list[str]
    hypotheses: list[GeneratedHypothesis]
    alternatives: list[str]


class LikelyToken(ResponseModel):
    piece: str
    id: int
    probability: Number


class DecodingStep(ResponseModel):
    """A token of the output and the most probable tokens at its position."""

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


class StepsResponse(ResponseModel):
    source: SourcePieces
    steps: list[DecodingStep]
    text: str
    ended: bool


NodeReason = Literal[
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


class TreeNode(ResponseModel):
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
    reason: NodeReason
    text: str


class RankedNode(ResponseModel):
    id: int
    text: str
    log_probability: Number
    score: Number
    reason: NodeReason


class TreeResponse(ResponseModel):
    steps: list[list[TreeNode]]
    ranking: list[RankedNode]
    width: int


class AblationBefore(ResponseModel):
    text: str
    log_probability: Number
    tokens: list[PieceProbability]


class AblationAfter(AblationBefore):
    cut: bool
    log_probability_of_old: Number


class AblateResponse(ResponseModel):
    """Output before and after. `delta` is the change in log-probability of the original output."""

    before: AblationBefore
    after: AblationAfter
    delta: Number


class ModelDescription(ResponseModel):
    """Description of a model. Fields about the network are null for exported models."""

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


class ModelsResponse(ResponseModel):
    models: list[ModelDescription]


class TrainingPoint(ResponseModel):
    step: int
    loss: Number
    learning_rate: Number
    tokens: Number
    seconds: Number


class TrainingResponse(ResponseModel):
    """Training history. A validation has its step, its loss and every score by name."""

    metrics: list[TrainingPoint]
    every: int
    steps: int
    validations: list[dict[str, Number]]
    best: int | None


class FormulaDescription(ResponseModel):
    id: str
    name: str
    text: str
    en: str
    zh: str
    symbols: dict[str, dict[str, str]]


class FormulasResponse(ResponseModel):
    formulas: list[FormulaDescription]


class PiecesAndWords(ResponseModel):
    """Pieces, and for each word the indices of its pieces."""

    pieces: list[str]
    words: list[list[int]]


class TargetPieces(ResponseModel):
    """Pieces of the target. `unknown` are the words of a given target that are not in the vocabulary, in order."""

    read: list[str]
    predicted: list[str]
    words: list[list[int]]
    read_words: list[list[int]]
    unknown: list[str]


class PredictedToken(ResponseModel):
    piece: str
    id: int
    log_probability: Number
    probability: Number
    entropy: Number
    eos: Number
    top: list[LikelyToken]


class MapLocation(ResponseModel):
    """Location of the maps of one type in the block. `offset` counts numbers, `byte_offset` counts bytes."""

    shape: list[int]
    offset: int
    byte_offset: int
    layers: list[int]


class MapBlockLayout(ResponseModel):
    dtype: Literal["float16"]
    layers: list[int]
    encoder_self: MapLocation
    decoder_self: MapLocation
    cross: MapLocation


class TraceHeadStats(ResponseModel):
    entropy: Number
    relative_entropy: Number
    distance: Number
    diagonality: Number
    special: Number
    largest: Number


class TraceAttentionStats(ResponseModel):
    """Head statistics by layer and head."""

    encoder_self: list[list[TraceHeadStats]]
    decoder_self: list[list[TraceHeadStats]]
    cross: list[list[TraceHeadStats]]


class AttentionRollout(ResponseModel):
    shape: list[int]
    values: list[Number]


class TraceResponse(ResponseModel):
    """Trace of a pair. `block` is the concatenation of all maps as float16 in base64."""

    source: PiecesAndWords
    target: TargetPieces
    unknown: list[str]
    text: str
    cut: bool
    log_probability: Number
    loss: Number
    tokens: list[PredictedToken]
    maps: MapBlockLayout
    block: str
    numbers: TraceAttentionStats
    rollout: AttentionRollout


class AxisLabels(ResponseModel):
    rows: list[str]
    columns: list[str]


class MaskResponse(ResponseModel):
    """Attention scores and weights. Masked scores are null."""

    labels: AxisLabels
    text: str
    cut: bool
    causal: list[list[bool]]
    padding: list[bool]
    before: Matrix
    after: Matrix
    weights: Matrix
    weights_unmasked: Matrix
    loss: Number
    loss_unmasked: Number


class BilingualText(ResponseModel):
    en: str
    zh: str


class BilingualSymbols(ResponseModel):
    en: dict[str, str]
    zh: dict[str, str]


class TensorPreview(ResponseModel):
    shape: list[int]
    numbers: list[Number]
    cut: bool


class OperationStep(ResponseModel):
    name: str
    formula: str
    formula_name: str
    text: str
    bound: str
    explain: BilingualText
    symbols: BilingualSymbols
    shape: list[int]
    values: TensorPreview


class OperationRow(ResponseModel):
    name: str
    part: str
    formula: str
    text: str
    bound: str
    explain: BilingualText
    shape_in: list[int] | None
    norm_in: Number
    shape_out: list[int]
    norm_out: Number
    share: Number
    gain: Number
    microseconds: Number
    values: TensorPreview
    steps: list[OperationStep]


class LedgerResponse(ResponseModel):
    rows: list[OperationRow]
    text: str
    cut: bool
    predicted: list[str]
    step: int | None
