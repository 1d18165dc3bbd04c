"""Request schemas of the explorer page's endpoints, and the list of models.

Responses of the other endpoints have no schema, because the page is their only client.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from attendo.serve.http.bodies import (
    DecodingRequest,
    ModelName,
    NonNegativeInt,
    RequestModel,
    ResponseModel,
    with_decoding_options,
)

HeadScale = Annotated[float, Field(ge=0, le=10)]
PieceOrId = Annotated[str, Field(max_length=200)] | NonNegativeInt
EditedModule = Annotated[str, Field(max_length=100)]
AttentionType = Literal["encoder_self", "decoder_self", "cross"]
_BEAM_OPTIONS = ("beam", "beam_groups", "diversity_penalty", "stop", "patience")
_SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed")
_OTHER_OPTIONS = (
    *("max_length", "min_length", "normalise", "length_penalty", "word_penalty"),
    *("no_repeat_ngram_size", "repetition_penalty"),
)
_MAX_ROWS, _MAX_TOKENS = 12, 512  # the page draws every row of a beam and every token
_MAX_PASSES = 50


if TYPE_CHECKING:
    _DeclaredOptions = DecodingRequest
else:
    _DeclaredOptions = with_decoding_options(
        (*_BEAM_OPTIONS, *_SAMPLING_OPTIONS, *_OTHER_OPTIONS),
        **dict.fromkeys(("beam", "beam_groups"), _MAX_ROWS),
        **dict.fromkeys(("max_length", "min_length"), _MAX_TOKENS),
    )


class ExplorerDecodingOptions(_DeclaredOptions):
    """Decoding options by their command line names. Null uses the model's setting."""

    kind: Literal["greedy", "beam", "sample"] = "greedy"
    n_best: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = 1

    def to_generate_options(self) -> dict[str, Any]:
        """Return the options that apply to this kind, by the names of `TextModel.generate`."""
        options = {name: each for name, each in self.model_dump(exclude={"kind"}).items() if each is not None}
        if self.kind != "sample":
            options = {name: each for name, each in options.items() if name not in _SAMPLING_OPTIONS}
        if self.kind != "beam":
            options = {name: each for name, each in options.items() if name not in _BEAM_OPTIONS}
            plain = {"beam": 1, "beam_groups": 1, "mbr": "none", "sample": self.kind == "sample"}
            return {**options, **plain, "n_best": self.n_best if self.kind == "sample" else 1}
        beam = options.setdefault("beam", 4)
        if options.get("beam_groups", 1) == 1:
            options.pop("diversity_penalty", None)
        if options.get("stop") != "first" or options.get("beam_groups", 1) > 1:
            options.pop("patience", None)
        return {**options, "n_best": min(self.n_best, beam), "mbr": "none", "sample": False}


class ModelTextRequest(RequestModel):
    """Request about one text and one model."""

    model: ModelName | None = None
    checkpoint: Annotated[str, Field(max_length=100)] | None = None
    text: str
    decoder: ExplorerDecodingOptions = ExplorerDecodingOptions()


class DisableEdit(RequestModel):
    """A layer or sub-layer passes its input on unchanged."""

    kind: Literal["off"]
    module: EditedModule


class AttentionWeightEdit(RequestModel):
    """One attention weight has this value. The other weights of its row are scaled."""

    kind: Literal["weight"]
    module: EditedModule
    row: NonNegativeInt
    column: NonNegativeInt
    value: Annotated[float, Field(ge=0, le=1)]
    head: NonNegativeInt | None = None


class MaskCellEdit(RequestModel):
    """A cell of a mask is open or closed. `decoder.self` is the mask of all layers."""

    kind: Literal["mask"]
    module: EditedModule
    row: NonNegativeInt
    column: NonNegativeInt
    visible: bool
    head: NonNegativeInt | None = None


class PaddingEdit(RequestModel):
    """The source is padded as in a batch with this text."""

    kind: Literal["padding"]
    text: str
    masked: bool = True


Edit = Annotated[DisableEdit | AttentionWeightEdit | MaskCellEdit | PaddingEdit, Field(discriminator="kind")]


class ScaledHeadsRequest(ModelTextRequest):
    """Request with scaled attention heads, {"decoder.0.cross": {"3": 0.0}}, and other edits of the network."""

    heads: dict[str, dict[str, HeadScale]] = Field(default_factory=dict, max_length=1000)
    edits: Annotated[list[Edit], Field(max_length=1000)] = Field(default_factory=list)


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


class DistributionRequest(ScaledHeadsRequest):
    prefix: Annotated[list[PieceOrId], Field(max_length=512)] = Field(default_factory=list)


class StepsRequest(DistributionRequest):
    attention: bool = False


class MaskRequest(TargetRequest):
    site: AttentionType = "decoder_self"
    layer: NonNegativeInt = 0
    head: NonNegativeInt = 0


class CalculationRequest(TargetRequest):
    """Request about one operation of the forward pass, from this row and column of its result on."""

    operation: Annotated[str, Field(max_length=200)]
    head: NonNegativeInt = 0
    row: NonNegativeInt = 0
    column: NonNegativeInt = 0


class RepresentationRequest(TargetRequest):
    top: Annotated[int, Field(ge=1, le=10)] = 5
    units: Annotated[int, Field(ge=1, le=20)] = 5


class EmbeddingRequest(TargetRequest):
    side: Literal["source", "target"] = "source"
    positions: Annotated[int, Field(ge=2, le=256)] = 64


class ParallelRequest(ModelTextRequest):
    """Request to a model that predicts all tokens at once. Null uses the model's setting."""

    target: str | None = None
    passes: Annotated[int, Field(ge=1, le=_MAX_PASSES)] | None = None
    graph_search: Literal["lookahead", "greedy", "viterbi", "tokens"] | None = None


class CheckRequest(ModelTextRequest):
    """Request about the faults of an output. `cut`: it reached the length limit before its end."""

    target: str
    cut: bool = False


PAGE_REQUESTS = (
    *(CheckRequest, ParallelRequest, AnswerRequest, TraceRequest, StepsRequest),
    *(DistributionRequest, MaskRequest, CalculationRequest),
    *(RepresentationRequest, EmbeddingRequest),
)


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
    label_smoothing: float | None
    has_training: bool
    samples: list[str]
    longest_sample: int | None  # characters of the longest validation source in the model folder
    scores: dict[str, Any]
    generation: dict[str, Any]


class ModelsResponse(ResponseModel):
    models: list[ModelDescription]
