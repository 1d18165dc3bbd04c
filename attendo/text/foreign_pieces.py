"""Subwords of a model that came from another system: its SentencePiece cuts, its own vocabulary gives the ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from attendo.errors import ModelError
from attendo.text.files import header_path, piece_list, read_bytes, symbol_list, write_header
from attendo.text.symbols import checked_symbols, split_at
from attendo.text.tokenizer import (
    CONTROL_PIECES,
    EOS,
    MARK,
    UNK,
    UNKNOWN_TEXT,
    checked_ids,
    label,
    one_line,
    require_unicode,
    spoken_ids,
)

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


@dataclass(frozen=True)
class ForeignPieces:
    """Text is changed as its SentencePiece model changes it (NFKC, mostly), and a piece that the vocabulary does not
    have is UNK: a text need not come back exactly. Symbols are the tokens of languages and the like, which have an id
    but no text.
    """

    kind: ClassVar[str] = "foreign_pieces"
    model: bytes = field(repr=False)
    entries: tuple[str, ...] = field(repr=False)  # behind the control pieces, symbols first
    symbols: tuple[str, ...] = ()
    _processor: "SentencePieceProcessor" = field(init=False, repr=False, compare=False)
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_symbols(self.symbols)
        ids = {piece: number for number, piece in enumerate(self.entries, start=len(CONTROL_PIECES))}
        for name, value in (("_processor", _open(self.model)), ("_ids", ids)):
            object.__setattr__(self, name, value)

    @classmethod
    def read(cls, folder: Path, name: str, header: dict[str, object]) -> "ForeignPieces":
        """The tokenizer in `NAME.tokenizer.json` and `NAME.spm`; a fault is a `ModelError`."""
        path = header_path(folder, name)
        entries = piece_list(path, header, from_disk=str, is_piece=bool)
        try:
            return cls(read_bytes(_model_path(folder, name)), entries, symbol_list(path, header))
        except ModelError as error:
            raise ModelError(f"{_model_path(folder, name)}: {error}") from None

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return len(CONTROL_PIECES) + len(self.entries)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; a line break is read as a space."""
        return [self._ids.get(piece, UNK) for piece in self._cut(text)]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, in one line."""
        spoken = [each for each in spoken_ids(ids, self.vocab_size) if not EOS < each <= EOS + len(self.symbols)]
        written = [f"{MARK}{UNKNOWN_TEXT}" if each == UNK else self._entry(each) for each in spoken]
        # What the SentencePiece model does not have, it leaves as it is, marks included.
        text: str = self._processor.decode_pieces(written)
        return one_line(text.replace(MARK, " ")).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Pieces without their space, control pieces by name."""
        checked = checked_ids(ids, self.vocab_size)
        return [
            CONTROL_PIECES[each] if each <= EOS else label(self._entry(each).replace(MARK, " ")) for each in checked
        ]

    def unknown(self, text: str) -> list[str]:
        """The pieces that the vocabulary does not have."""
        return [label(piece.replace(MARK, " ")) for piece in self._cut(text) if piece not in self._ids]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json` and `NAME.spm`."""
        header = write_header(folder, name, self.kind, self.entries, self.symbols)
        path = _model_path(folder, name)
        path.write_bytes(self.model)
        return [header, path]

    def _cut(self, text: str) -> list[str]:
        require_unicode(text)
        parts = split_at(one_line(text), self.symbols)
        cut: list[str] = []
        for place, part in enumerate(parts):
            cut += [part] if place % 2 else self._processor.encode(part, out_type=str)
        return cut

    def _entry(self, number: int) -> str:
        return self.entries[number - len(CONTROL_PIECES)]


def _open(model: bytes) -> "SentencePieceProcessor":
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise ModelError("this is not a SentencePiece model; copy the model folder again") from None


def _model_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.spm"
