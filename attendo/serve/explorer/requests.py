"""What the page may ask, field by field; whatever is not listed is refused by name."""

from typing import Annotated, Any, Literal

from pydantic import Field

from attendo.serve.fields import (
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
    TopK,
    WordPenalty,
)

Scale = Annotated[float, Field(ge=0, le=10)]
Piece = Annotated[str, Field(max_length=200)] | Natural

_OF_BEAMS = ("beam", "groups", "diversity", "stop", "patience")
_OF_SAMPLES = ("temperature", "top_k", "top_p", "min_p", "typical", "seed")


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
