"""The vocabulary of a tokenizer as other systems want it: one text for each id, no two alike."""

from collections.abc import Iterable, Sequence

from attendo.text import CONTROL_PIECES, Characters, SentencePiece, Tokenizer, Words
from attendo.text.byte_pairs import BytePairs
from attendo.text.foreign_pieces import ForeignPieces
from attendo.text.sentencepiece_file import pieces
from attendo.text.tokenizer import MARK


def names_of(tokenizer: Tokenizer) -> list[str]:
    """As SentencePiece writes them, with `▁` for the space before a piece. Where two would be alike, the later one has
    its number for a name.
    """
    first = len(CONTROL_PIECES)
    names: dict[str, None] = dict.fromkeys(CONTROL_PIECES)
    for number, piece in enumerate(_pieces(tokenizer), start=first):
        names[piece if piece and piece not in names else number_name(number, names)] = None
    return list(names)


def sentencepiece_file(tokenizer: Tokenizer) -> bytes | None:
    """What the SentencePiece library loads and cuts texts with, where that is how they are cut."""
    return tokenizer.model if isinstance(tokenizer, SentencePiece | ForeignPieces) else None


def ids_of(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _pieces(tokenizer: Tokenizer) -> Iterable[str]:
    """Those behind the control pieces."""
    first = len(CONTROL_PIECES)
    match tokenizer:
        case SentencePiece():
            return [piece.text for piece in pieces(tokenizer.model)][first:]
        case ForeignPieces() | BytePairs():
            return tokenizer.entries
        case Words() | Characters():
            return [entry.replace(" ", MARK) for entry in tokenizer.vocabulary.entries]
        case _:
            return tokenizer.pieces(range(first, tokenizer.vocab_size))


def number_name(number: int, taken: Iterable[str]) -> str:
    """For a token that has no other name. With its space no tokenizer ever cuts it out of a text."""
    name = f"<row {number}>"
    while name in taken:
        name = f"<{name}>"
    return name
