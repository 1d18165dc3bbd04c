"""Request and response schemas of the explorer page's endpoints."""

from typing import Annotated, Any, Literal

from pydantic import Field

from attendo.serve.http.bodies import (
    Asked,
    Diversity,
    Least,
    LengthPenalty,
    ModelName,
    Natural,
    Ngram,
    Normalise,
    Patience,
    RepetitionPenalty,
    Seed,
    Share,
    Stop,
    Temperature,
    Told,
    TopK,
    WordPenalty,
)

Scale = Annotated[float, Field(ge=0, le=10)]
Piece = Annotated[str, Field(max_length=200)] | Natural
_OF_BEAMS = ("beam", "groups", "diversity", "stop", "patience")
_OF_SAMPLES = ("temperature", "top_k", "top_p", "min_p", "typical", "seed")
Number = float | None  # None: it is not finite, or there is none
Matrix = list[list[Number]]


class Decoder(Asked):
    """How an answer is found, by the names of the command line. What is null is as the model has it."""

    kind: Literal["greedy", "beam", "sample"] = "greedy"
    n_best: Annotated[int, Field(ge=1, le=12)] = 1
    max_length: Annotated[int, Field(ge=1, le=512)] | None = None
    min_length: Annotated[int, Field(ge=1, le=512)] | None = None

    beam: Annotated[int, Field(ge=1, le=12)] | None = None
    groups: Annotated[int, Field(ge=1, le=12)] | None = None
    diversity: Diversity | None = None
    stop: Stop | None = None
    patience: Patience | None = None

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: Share | None = None
    min_p: Least | None = None
    typical: Share | None = None
    seed: Seed | None = None

    normalise: Normalise | None = None
    length_penalty: LengthPenalty | None = None
    word_penalty: WordPenalty | None = None
    no_repeat_ngram: Ngram | None = None
    repetition_penalty: RepetitionPenalty | None = None

    def options(self) -> dict[str, Any]:
        """As `TextModel.generate` takes them: those that concern this kind."""
        given = {name: each for name, each in self.model_dump(exclude={"kind"}).items() if each is not None}
        if self.kind != "sample":
            given = {name: each for name, each in given.items() if name not in _OF_SAMPLES}
        if self.kind != "beam":
            given = {name: each for name, each in given.items() if name not in _OF_BEAMS}
            plain = {"beam": 1, "groups": 1, "mbr": "none", "sample": self.kind == "sample"}
            return {**given, **plain, "n_best": self.n_best if self.kind == "sample" else 1}
        beam = given.setdefault("beam", 4)
        if given.get("groups", 1) == 1:
            given.pop("diversity", None)
        if given.get("stop") != "first" or given.get("groups", 1) > 1:
            given.pop("patience", None)
        return {**given, "n_best": min(self.n_best, beam), "mbr": "none", "sample": False}


class OfModel(Asked):
    """About one text and one model."""

    model: ModelName | None = None
    checkpoint: Annotated[str, Field(max_length=100)] | None = None
    text: str
    decoder: Decoder = Decoder()


class OfHeads(OfModel):
    """Where heads may count for less: {"decoder.0.cross": {"3": 0.0}}."""

    heads: dict[str, dict[str, Scale]] = Field(default_factory=dict, max_length=1000)


class OfTarget(OfHeads):
    """Also about an answer: the given one, or the model's own by `decoder`."""

    target: str | None = None


class AnswerRequest(OfHeads):
    prefix: Annotated[list[Piece], Field(max_length=512)] | None = None
    alternatives: Annotated[int, Field(ge=0, le=8)] = 3
    stream: bool = False


class TraceRequest(OfTarget):
    masked: bool = True
    layers: Annotated[list[Natural], Field(max_length=1000)] | None = None


class StepsRequest(OfHeads):
    prefix: Annotated[list[Piece], Field(max_length=512)] = Field(default_factory=list)


class TreeRequest(OfHeads):
    pass


class MaskRequest(OfTarget):
    layer: Natural = 0
    head: Natural = 0


class LedgerRequest(OfTarget):
    masked: bool = True
    step: Natural | None = None


class AblateRequest(OfTarget):
    pass


class RankRequest(OfTarget):
    pass


REQUESTS = (
    AnswerRequest,
    TraceRequest,
    StepsRequest,
    TreeRequest,
    MaskRequest,
    LedgerRequest,
    AblateRequest,
    RankRequest,
)


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


class Words(Told):
    """`words` are the places of the pieces that make each."""

    pieces: list[str]
    words: list[list[int]]


class ReadAndPredicted(Told):
    """`unknown` are the words of a target that was given and that the vocabulary lacks, in order."""

    read: list[str]
    predicted: list[str]
    words: list[list[int]]
    read_words: list[list[int]]
    unknown: list[str]


class PredictedToken(Told):
    piece: str
    id: int
    log_probability: Number
    probability: Number
    entropy: Number
    eos: Number
    top: list[LikelyToken]


class Place(Told):
    """Of the maps of one kind in the block: counted in numbers and in bytes."""

    shape: list[int]
    offset: int
    byte_offset: int
    layers: list[int]


class MapsOfRun(Told):
    dtype: Literal["float16"]
    layers: list[int]
    encoder_self: Place
    decoder_self: Place
    cross: Place


class NumbersOfHead(Told):
    entropy: Number
    relative_entropy: Number
    distance: Number
    diagonality: Number
    special: Number
    largest: Number


class NumbersOfRun(Told):
    """By layer and head."""

    encoder_self: list[list[NumbersOfHead]]
    decoder_self: list[list[NumbersOfHead]]
    cross: list[list[NumbersOfHead]]


class Rollout(Told):
    shape: list[int]
    values: list[Number]


class TraceReply(Told):
    """`block` is all maps behind one another as float16 in base64."""

    source: Words
    target: ReadAndPredicted
    unknown: list[str]
    text: str
    cut: bool
    log_probability: Number
    loss: Number
    tokens: list[PredictedToken]
    maps: MapsOfRun
    block: str
    numbers: NumbersOfRun
    rollout: Rollout


class RowsAndColumns(Told):
    rows: list[str]
    columns: list[str]


class MaskReply(Told):
    """A score that the mask has taken away is null."""

    labels: RowsAndColumns
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


class BothLanguages(Told):
    en: str
    zh: str


class Symbols(Told):
    en: dict[str, str]
    zh: dict[str, str]


class FirstNumbers(Told):
    shape: list[int]
    numbers: list[Number]
    cut: bool


class LedgerLine(Told):
    name: str
    formula: str
    formula_name: str
    text: str
    bound: str
    explain: BothLanguages
    symbols: Symbols
    shape: list[int]
    values: FirstNumbers


class LedgerRow(Told):
    name: str
    part: str
    formula: str
    text: str
    bound: str
    explain: BothLanguages
    shape_in: list[int] | None
    norm_in: Number
    shape_out: list[int]
    norm_out: Number
    share: Number
    gain: Number
    microseconds: Number
    values: FirstNumbers
    steps: list[LedgerLine]


class LedgerReply(Told):
    rows: list[LedgerRow]
    text: str
    cut: bool
    predicted: list[str]
    step: int | None
