"""Subword tokenizer trained with SentencePiece (BPE or unigram, byte fallback), and its model file."""

import io
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from attendo.errors import DataError, ModelError, UsageError, cut_text
from attendo.model_files import COPY_AGAIN
from attendo.text.tokenizer import (
    BOS,
    EOS,
    MARK,
    PAD,
    UNK,
    BaseTokenizer,
    header_path,
    is_unicode,
    parse_symbols,
    read_bytes,
    replace_newlines,
    require_unicode,
    split_at_symbols,
    strip_special_ids,
    validate_special_tokens,
    write_header,
)

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# SentencePiece silently drops lines over 4,192 bytes, and a very long word aborts the process.
_MAX_LINE_CHARACTERS = 1000
_MAX_VOCAB_SIZE = 2**31 - 1
_SILENT_LOG_LEVEL = 5
_THREADS = 2
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(frozen=True)
class SentencePiece(BaseTokenizer):
    """SentencePiece tokenizer. Any text without line breaks is restored exactly. `decode` never returns a line break.

    SentencePiece itself reads a `▁` in the text as a space. Here it is encoded as its three bytes, which every
    SentencePiece decoder turns back into `▁`. A text is split at its symbols before SentencePiece sees it, because a
    unigram model would split a symbol if an overlapping piece scores better. One space is added before a text, unless
    the text starts with a symbol.
    """

    kind: ClassVar[str] = "sentencepiece"
    model: bytes = field(repr=False)
    symbols: tuple[str, ...] = field(init=False, compare=False)
    _processor: "SentencePieceProcessor" = field(init=False, repr=False, compare=False)
    _unsplit_ids: dict[str, list[int]] = field(init=False, repr=False, compare=False)  # of symbols and `▁`

    def __post_init__(self) -> None:
        processor = _load_processor(self.model)
        symbols = _read_symbols(self.model)
        unsplit_ids = {
            MARK: _byte_ids(processor, MARK),
            **{symbol: [processor.piece_to_id(symbol)] for symbol in symbols},
        }
        for name, value in (("symbols", symbols), ("_processor", processor), ("_unsplit_ids", unsplit_ids)):
            object.__setattr__(self, name, value)

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int, model_type: Literal["bpe", "unigram"] = "bpe", symbols: Sequence[str] = ()
    ) -> "SentencePiece":
        """Train at most `size` ids, including control pieces, symbols and 256 bytes. Small corpora give fewer.

        The texts are read once. The only copy in memory is that of SentencePiece.
        """
        if model_type not in ("bpe", "unigram"):
            raise UsageError("subword_kind_unknown", kind=model_type)
        return cls(_train(_training_lines(texts), size, model_type, validate_special_tokens(symbols)))

    @classmethod
    def read(cls, folder: Path, name: str, header: dict[str, object]) -> "SentencePiece":
        """Read `NAME.spm`. A fault raises a `ModelError`."""
        path = model_path(folder, name)
        model = read_bytes(path)
        try:
            tokenizer = cls(model)
        except ModelError as error:
            raise ModelError("sentencepiece_file_invalid", path=path, error=error) from None
        if tokenizer.symbols != parse_symbols(header_path(folder, name), header):
            raise ModelError("sentencepiece_symbols_mismatch", path=path, name=name)
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. A line break is read as a space."""
        parts = self._split(text)
        return self._join(parts, map(self._processor.encode, parts[::2]))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, with one call of SentencePiece."""
        split_texts = [self._split(text) for text in texts]
        between = [part for parts in split_texts for part in parts[::2]]
        encoded = iter(self._processor.encode(between, num_threads=_THREADS))
        return [self._join(parts, encoded) for parts in split_texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Invalid UTF-8 becomes U+FFFD, line breaks become spaces."""
        text: str = self._processor.decode(strip_special_ids(ids, self.vocab_size))
        return replace_newlines(text.removeprefix(" "))

    def unknown(self, text: str) -> list[str]:
        """Return an empty list: byte fallback covers every character."""
        return []

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json` and `NAME.spm`."""
        header = write_header(folder, name, self.kind, symbols=self.symbols)
        path = model_path(folder, name)
        path.write_bytes(self.model)
        return [header, path]

    def _split(self, text: str) -> list[str]:
        """Return texts for SentencePiece in alternation with symbols or a `▁` from the user."""
        require_unicode(text)
        parts = split_at_symbols(replace_newlines(text), tuple(self._unsplit_ids))
        if text and not text.startswith(self.symbols):
            parts[0] = f" {parts[0]}"
        return parts

    def _join(self, parts: list[str], encoded: Iterator[list[int]]) -> list[int]:
        """Return the ids of a text from its parts. Every second part is already encoded."""
        ids = next(encoded)
        for token in parts[1::2]:
            ids.extend(self._unsplit_ids[token])
            ids.extend(next(encoded))
        return ids

    def _piece_text(self, piece_id: int) -> str:
        return self._processor.id_to_piece(piece_id).replace(MARK, " ")


def _load_processor(model: bytes) -> "SentencePieceProcessor":
    processor = open_processor(model)
    controls = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if processor.vocab_size() <= EOS or controls != (PAD, UNK, BOS, EOS):
        raise ModelError("control_ids_mismatch", ids=controls)
    if UNK in _byte_ids(processor, MARK):
        raise ModelError("sentencepiece_byte_pieces_missing")
    # `_split` adds the space before a text. SentencePiece would add one before every part.
    processor.override_normalizer_spec(add_dummy_prefix=False)
    return processor


def _read_symbols(model: bytes) -> tuple[str, ...]:
    """Return the symbols. They follow the control pieces, so the rest of the file is not read."""
    after_controls = (piece for number, piece in enumerate(iter_pieces(model)) if number > EOS)
    try:
        return validate_special_tokens(
            [piece.text for piece in takewhile(lambda piece: piece.type == PieceType.USER_DEFINED, after_controls)]
        )
    except UsageError as error:
        raise ModelError("sentencepiece_symbols_invalid", error=error) from None


def _byte_ids(processor: "SentencePieceProcessor", text: str) -> list[int]:
    return [processor.piece_to_id(f"<0x{byte:02X}>") for byte in text.encode()]


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    """Split texts into lines that SentencePiece accepts. It skips lines with `▁` or `▅`, so split there."""
    for text in texts:
        if not is_unicode(text):
            raise DataError("training_text_unpaired_surrogate", text=text[:40])
        for line in re.split("[\r\n▁▅]", text):
            if line.strip():
                yield from (
                    line[start : start + _MAX_LINE_CHARACTERS] for start in range(0, len(line), _MAX_LINE_CHARACTERS)
                )


def _train(lines: Iterator[str], size: int, model_type: str, symbols: tuple[str, ...]) -> bytes:
    from sentencepiece import SentencePieceTrainer

    if not 0 < size <= _MAX_VOCAB_SIZE:
        raise UsageError("vocabulary_size_out_of_range", size=size)
    first = next(lines, None)
    if first is None:
        raise DataError("tokenizer_training_text_empty")
    faults: list[Exception] = []
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_capture_errors(chain([first], lines), faults),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            hard_vocab_limit=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            byte_fallback=True,
            user_defined_symbols=list(symbols),
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=1,
            minloglevel=_SILENT_LOG_LEVEL,
        )
    except RuntimeError as error:
        raise faults[0] if faults else _explain(error, size) from None
    return model.getvalue()


def _capture_errors(lines: Iterator[str], faults: list[Exception]) -> Iterator[str]:
    """Keep an exception of the iterator. SentencePiece turns any exception into a `RuntimeError`."""
    try:
        yield from lines
    except Exception as fault:
        faults.append(fault)
        raise


def _explain(error: RuntimeError, size: int) -> UsageError | DataError:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
        return UsageError("vocabulary_below_character_count", size=size, minimum=too_small[1])
    return DataError("sentencepiece_training_failed", reason=" ".join(str(error).split()))


def model_path(folder: Path, name: str) -> Path:
    """Return the path of the SentencePiece model of the tokenizer `name`."""
    return folder / f"{name}.spm"


class PieceType(IntEnum):
    """Piece types, as numbered by SentencePiece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class SentencePieceEntry:
    """One entry of the vocabulary."""

    text: str
    score: float
    type: PieceType


def open_processor(model: bytes) -> "SentencePieceProcessor":
    """Load a model with the SentencePiece library. Raise if it is unreadable or a piece is not text."""
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_proto=model)
        processor.id_to_piece(list(range(processor.vocab_size())))
    except (RuntimeError, ValueError):
        raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN) from None
    return processor


def read_model_type(model: bytes) -> str:
    """Return `bpe`, `unigram`, `word` or `char`."""
    for number, trainer in _iter_protobuf_fields(model):
        if number == 2 and isinstance(trainer, bytes):
            kinds = (
                value for number, value in _iter_protobuf_fields(trainer) if number == 3 and isinstance(value, int)
            )
            return _MODEL_TYPES.get(next(kinds, 1), _MODEL_TYPES[1])
    return _MODEL_TYPES[1]


def iter_pieces(model: bytes) -> Iterator[SentencePieceEntry]:
    """Yield the vocabulary in id order."""
    return (_parse_piece(row) for number, row in _iter_protobuf_fields(model) if number == 1 and isinstance(row, bytes))


def _parse_piece(row: bytes) -> SentencePieceEntry:
    text, score, kind = b"", 0.0, 1
    for number, value in _iter_protobuf_fields(row):
        match number, value:
            case 1, bytes():
                text = value
            case 2, bytes() if len(value) == 4:
                (score,) = struct.unpack("<f", value)
            case 3, int():
                kind = value
    try:
        return SentencePieceEntry(text.decode("utf-8"), score, PieceType(kind))
    except ValueError as error:  # not UTF-8, or an unknown piece type
        raise ModelError("sentencepiece_piece_invalid", reason=cut_text(str(error)), fix=COPY_AGAIN) from None


def _iter_protobuf_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: the number, and an integer or bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, form = tag >> 3, tag & 7
        if number == 0:
            raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
        if form == 0:
            value, position = _read_varint(message, position)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(form)
        if form == 2:
            length, position = _read_varint(message, position)
        if length is None or position + length > len(message):
            raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
        yield number, message[position : position + length]
        position += length


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a varint (7 bits per byte, lowest first) and the position after it."""
    number = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ModelError("not_a_sentencepiece_model", fix=COPY_AGAIN)
