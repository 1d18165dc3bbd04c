"""What the page is told of one run seen from inside, field by field, as the OpenAPI file has it."""

from typing import Literal

from attendo.serve.explorer.replies import LikelyToken, Number
from attendo.serve.fields import Told

Matrix = list[list[Number]]


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
