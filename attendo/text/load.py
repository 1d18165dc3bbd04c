"""From the files of a tokenizer back to the tokenizer."""

from pathlib import Path

from attendo.errors import ModelError, shorten
from attendo.text.byte_pairs import BytePairs
from attendo.text.characters import Characters
from attendo.text.decomposed import Decomposed
from attendo.text.files import header_path, read_header
from attendo.text.foreign_pieces import ForeignPieces
from attendo.text.raw_bytes import Bytes
from attendo.text.spaced import Spaced
from attendo.text.subwords import SentencePiece
from attendo.text.tokenizer import Tokenizer
from attendo.text.words import Words


def load_tokenizer(folder: Path, name: str) -> Tokenizer:
    """The tokenizer saved in `folder` as `name`; files that are missing or damaged are a `ModelError`."""
    path = header_path(folder, name)
    header = read_header(folder, name)
    match header.get("kind"):
        case Words.kind:
            return Words.read(path, header)
        case Characters.kind:
            return Characters.read(path, header)
        case Decomposed.kind:
            return Decomposed.read(path, header)
        case Spaced.kind:
            return Spaced.read(path, header)
        case Bytes.kind:
            return Bytes.read(path, header)
        case SentencePiece.kind:
            return SentencePiece.read(folder, name, header)
        case ForeignPieces.kind:
            return ForeignPieces.read(folder, name, header)
        case BytePairs.kind:
            return BytePairs.read(folder, name, header)
        case kind:
            kinds = (Words, Characters, Decomposed, Spaced, Bytes, SentencePiece, ForeignPieces, BytePairs)
            known = ", ".join(each.kind for each in kinds)
            raise ModelError("tokenizer_kind_unknown", path=path, kind=shorten(kind), known=known)
