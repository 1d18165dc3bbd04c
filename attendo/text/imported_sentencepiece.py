"""Tokenizer of an imported model: SentencePiece segmentation with the ids of the model's own vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from attendo.errors import ModelError
from attendo.text.byte_level_bpe import ImportedVocabulary, read_entries
from attendo.text.sentencepiece import PieceType, iter_pieces, model_path, open_processor
from attendo.text.tokenizer import (
    MARK,
    UNK,
    UNKNOWN_TEXT,
    display_piece,
    read_bytes,
    replace_newlines,
    require_unicode,
    split_between_symbols,
    validate_special_tokens,
    write_header,
)

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


@dataclass(frozen=True)
class ImportedSentencePiece(ImportedVocabulary):
    """SentencePiece tokenizer with a fixed vocabulary. Decoding may not restore the text exactly.

    The SentencePiece model normalises the text (mostly NFKC), and pieces outside the vocabulary become UNK. Symbols are
    language tokens and similar.
    """

    kind: ClassVar[str] = "foreign_pieces"
    model: bytes = field(repr=False)
    entries: tuple[str, ...] = field(repr=False)
    symbols: tuple[str, ...] = ()
    _processor: "SentencePieceProcessor" = field(init=False, repr=False, compare=False)
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_processor", open_processor(self.model))

    @classmethod
    def from_model(cls, model: bytes, symbols: Sequence[str] = ()) -> "ImportedSentencePiece":
        """Build from all pieces of a SentencePiece model, with new symbols first. A fault raises a `ModelError`."""
        text_types = {PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.BYTE}
        found = [piece.text for piece in iter_pieces(model) if piece.type in text_types and piece.text not in symbols]
        if len(set(found)) < len(found):
            raise ModelError("sentencepiece_duplicate_piece")
        return cls(model, (*symbols, *found), validate_special_tokens(symbols))

    @classmethod
    def read(cls, folder: Path, name: str, header: dict[str, object]) -> "ImportedSentencePiece":
        """Read `NAME.tokenizer.json` and `NAME.spm`. A fault raises a `ModelError`."""
        model = read_bytes(model_path(folder, name))
        entries, symbols = read_entries(folder, name, header)
        try:
            return cls(model, entries, symbols)
        except ModelError as error:
            raise ModelError("sentencepiece_file_invalid", path=model_path(folder, name), error=error) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, on one line."""
        pieces = [f"{MARK}{UNKNOWN_TEXT}" if each == UNK else self._entry(each) for each in self._text_ids(ids)]
        # SentencePiece keeps unknown pieces unchanged, with their marks.
        text: str = self._processor.decode_pieces(pieces)
        return replace_newlines(text.replace(MARK, " ")).strip()

    def normalize(self, text: str) -> str:
        """Return the text as the SentencePiece model reads it, such as `fi` for the ligature."""
        return str(self._processor.normalize(replace_newlines(text))).replace(MARK, " ")

    def unknown(self, text: str) -> list[str]:
        """Return the pieces that are not in the vocabulary."""
        return [display_piece(piece.replace(MARK, " ")) for piece in super().unknown(text)]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json` and `NAME.spm`."""
        header = write_header(folder, name, self.kind, self.entries, self.symbols)
        path = model_path(folder, name)
        path.write_bytes(self.model)
        return [header, path]

    def _split(self, text: str) -> list[str]:
        require_unicode(text)
        return split_between_symbols(
            replace_newlines(text), self.symbols, lambda part: self._processor.encode(part, out_type=str)
        )

    def _piece_text(self, piece_id: int) -> str:
        return self._entry(piece_id).replace(MARK, " ")
