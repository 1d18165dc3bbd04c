"""What a SentencePiece model says in its file and its library does not tell: the kind of model, the kinds of pieces."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from attendo.errors import ModelError, cut_text
from attendo.model_files import COPY_AGAIN

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_MODEL_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class PieceKind(IntEnum):
    """As SentencePiece numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """A row of the vocabulary."""

    text: str
    score: float
    kind: PieceKind


def open_processor(model: bytes) -> "SentencePieceProcessor":
    """The model in the SentencePiece library; one that it cannot read, or whose pieces are no text, is an error."""
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_proto=model)
        processor.id_to_piece(list(range(processor.vocab_size())))
    except (RuntimeError, ValueError):
        raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN) from None
    return processor


def model_kind(model: bytes) -> str:
    """`bpe`, `unigram`, `word` or `char`."""
    for number, trainer in _fields(model):
        if number == 2 and isinstance(trainer, bytes):
            kinds = (value for number, value in _fields(trainer) if number == 3 and isinstance(value, int))
            return _MODEL_KINDS.get(next(kinds, 1), _MODEL_KINDS[1])
    return _MODEL_KINDS[1]


def pieces(model: bytes) -> Iterator[Piece]:
    """The vocabulary in the order of ids."""
    return (_piece(row) for number, row in _fields(model) if number == 1 and isinstance(row, bytes))


def _piece(row: bytes) -> Piece:
    text, score, kind = b"", 0.0, 1
    for number, value in _fields(row):
        match number, value:
            case 1, bytes():
                text = value
            case 2, bytes() if len(value) == 4:
                (score,) = struct.unpack("<f", value)
            case 3, int():
                kind = value
    try:
        return Piece(text.decode("utf-8"), score, PieceKind(kind))
    except ValueError as error:  # not UTF-8, or no kind
        raise ModelError("sentencepiece_piece_invalid", reason=cut_text(str(error)), fix=COPY_AGAIN) from None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: their number, and an integer or the bytes."""
    position = 0
    while position < len(message):
        tag, position = _variable_integer(message, position)
        number, form = tag >> 3, tag & 7
        if number == 0:
            raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
        if form == 0:
            value, position = _variable_integer(message, position)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(form)
        if form == 2:
            length, position = _variable_integer(message, position)
        if length is None or position + length > len(message):
            raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
        yield number, message[position : position + length]
        position += length


def _variable_integer(message: bytes, position: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where the next thing begins."""
    number = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
