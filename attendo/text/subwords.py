"""Subwords learnt by SentencePiece, with bytes for what was never seen."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from attendo.errors import DataError, ModelError, UsageError
from attendo.text.files import read_bytes, write_header
from attendo.text.tokenizer import (
    BOS,
    CONTROL_PIECES,
    EOS,
    MARK,
    PAD,
    UNK,
    checked_ids,
    is_unicode,
    label,
    spoken_ids,
)

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

# One line in, one line out: a line break is read, and would be written, as a space.
_ONE_LINE = str.maketrans("\r\n", "  ")

# SentencePiece drops longer lines in silence (4,192 bytes), and a very long word stops the whole process.
_LINE_CHARACTERS = 1000

_LARGEST_SIZE = 2**31 - 1
_NO_MESSAGES = 5


@dataclass(frozen=True)
class SentencePiece:
    """Any text without line breaks comes back exactly; `decode` never returns a line break.

    SentencePiece itself reads a `▁` in the text as a space. Here it is written as its three bytes, which every
    SentencePiece decoder turns back into `▁`.
    """

    kind: ClassVar[str] = "sentencepiece"
    model: bytes = field(repr=False)
    _processor: "SentencePieceProcessor" = field(init=False, repr=False, compare=False)
    _mark_ids: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        processor = _open(self.model)
        object.__setattr__(self, "_processor", processor)
        object.__setattr__(self, "_mark_ids", _byte_ids(processor, MARK))

    @classmethod
    def train(cls, texts: Iterable[str], size: int, kind: Literal["bpe", "unigram"] = "bpe") -> "SentencePiece":
        """At most `size` ids, control pieces and 256 bytes included; fewer where the text has no more to learn."""
        if kind not in ("bpe", "unigram"):
            raise UsageError(f"kind must be bpe or unigram, not {kind!r}")
        return cls(_train(list(_training_lines(texts)), size, kind))

    @classmethod
    def read(cls, folder: Path, name: str) -> "SentencePiece":
        """The tokenizer in `NAME.spm`; a fault is a `ModelError`."""
        path = _model_path(folder, name)
        model = read_bytes(path)
        try:
            return cls(model)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text; a line break is read as a space."""
        ids: list[int] = []
        for position, part in enumerate(_parts(text)):
            ids.extend(self._mark_ids if position else [])
            ids.extend(self._processor.encode(part))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are no UTF-8 read as U+FFFD, line breaks as spaces."""
        text: str = self._processor.decode(spoken_ids(ids, self.vocab_size))
        return text.removeprefix(" ").translate(_ONE_LINE)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Pieces without their space, bytes as `<0xE4>`, control pieces by name."""
        checked = checked_ids(ids, self.vocab_size)
        return [CONTROL_PIECES[each] if each <= EOS else self._label(each) for each in checked]

    def unknown(self, text: str) -> list[str]:
        """Nothing: every character has bytes."""
        return []

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json` and `NAME.spm`."""
        header = write_header(folder, name, self.kind)
        path = _model_path(folder, name)
        path.write_bytes(self.model)
        return [header, path]

    def _label(self, piece_id: int) -> str:
        return label(self._processor.id_to_piece(piece_id).replace(MARK, " "))


def _parts(text: str) -> list[str]:
    """The text with one space before it, cut at every `▁` that the user wrote."""
    if not is_unicode(text):
        raise UsageError(f"the text {text[:40]!r} holds half of a surrogate pair: send valid Unicode")
    return f" {text}".translate(_ONE_LINE).split(MARK) if text else []


def _open(model: bytes) -> "SentencePieceProcessor":
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise ModelError("this is not a SentencePiece model; copy the model folder again") from None
    controls = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if processor.vocab_size() <= EOS or controls != (PAD, UNK, BOS, EOS):
        raise ModelError(
            f"pad, unk, bos and eos must have the ids 0, 1, 2, 3, not {controls}; train the tokenizer here"
        )
    if UNK in _byte_ids(processor, MARK):
        raise ModelError("this SentencePiece model has no byte pieces; train it with byte_fallback")
    # The space before a text is put there by `_parts`, since SentencePiece would put one before every part.
    processor.override_normalizer_spec(add_dummy_prefix=False)
    return processor


def _byte_ids(processor: "SentencePieceProcessor", text: str) -> list[int]:
    return [processor.piece_to_id(f"<0x{byte:02X}>") for byte in text.encode()]


def _training_lines(texts: Iterable[str]) -> Iterator[str]:
    """Lines that SentencePiece uses whole: it skips those with its own signs `▁` and `▅`, so they are cut there."""
    for text in texts:
        if not is_unicode(text):
            raise DataError(f"the text {text[:40]!r} holds half of a surrogate pair: save the file as UTF-8")
        for line in re.split("[\r\n▁▅]", text):
            if line.strip():
                yield from (line[start : start + _LINE_CHARACTERS] for start in range(0, len(line), _LINE_CHARACTERS))


def _train(lines: list[str], size: int, kind: str) -> bytes:
    from sentencepiece import SentencePieceTrainer

    if not lines:
        raise DataError("there is no text to train a tokenizer on: the input is empty")
    if not 0 < size <= _LARGEST_SIZE:
        raise UsageError(f"a vocabulary of {size} is not possible: give a size such as 8000")
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            num_threads=1,
            minloglevel=_NO_MESSAGES,
        )
    except RuntimeError as error:
        raise _explain(error, size) from None
    return model.getvalue()


def _explain(error: RuntimeError, size: int) -> UsageError | DataError:
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
        return UsageError(f"a vocabulary of {size} is too small for this text: the least is {too_small[1]}")
    return DataError(f"SentencePiece cannot be trained on this text: {' '.join(str(error).split())}")


def _model_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.spm"
