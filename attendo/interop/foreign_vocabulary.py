"""Vocabularies of other systems: pieces with their ids, and whether they fit a network and its SentencePiece."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attendo.errors import ModelError, list_names, shorten
from attendo.interop.foreign_values import Field
from attendo.interop.huggingface import HuggingFaceFolder, read_json
from attendo.interop.rearranged import Rearranged
from attendo.interop.vocabularies import number_name
from attendo.model_files import COPY_AGAIN, read_bytes
from attendo.text import CONTROL_PIECES
from attendo.text.sentencepiece_file import Piece, PieceKind, open_processor, pieces

_KNOWN_SHARE = 0.9  # of the pieces of a SentencePiece model: with fewer it belongs to another vocabulary
_SHOWN = 5  # pieces in a message


def read_vocabulary(path: Path) -> dict[str, int]:
    """A piece for each id, and an id for each piece."""
    vocabulary = read_json(path)
    ids = list(vocabulary.values())
    if not ids or not all(type(each) is int and each >= 0 for each in ids) or len(set(ids)) < len(ids):
        raise ModelError("vocabulary_ids_invalid", path=path)
    return vocabulary


def require_fit(path: Path, vocabulary: Mapping[str, int], size: int) -> None:
    """Every id must have a row in the network's tables; rows without a piece there may be."""
    piece, last = max(vocabulary.items(), key=lambda each: each[1])
    if last >= size:
        raise ModelError(
            "vocabulary_exceeds_network", path=path, piece=shorten(piece), token_id=shorten(last), size=size
        )


def pieces_of(path: Path, vocabulary: Mapping[str, int]) -> bytes:
    """A SentencePiece model whose pieces the vocabulary knows."""
    model = read_bytes(path, COPY_AGAIN)
    normal = [piece.text for piece in read_pieces(path, model) if piece.kind == PieceKind.NORMAL]
    known = len(normal) - len(_missing(model, vocabulary))
    if not normal or known < _KNOWN_SHARE * len(normal):
        raise ModelError("sentencepiece_vocabulary_mismatch", path=path, known=known, count=len(normal))
    return model


def read_pieces(path: Path, model: bytes) -> list[Piece]:
    """All pieces of a SentencePiece model that lies there."""
    try:
        open_processor(model)
        return list(pieces(model))
    except ModelError:
        raise ModelError("sentencepiece_model_invalid", path=path) from None


def missing(path: Path, model: bytes, vocabulary: Mapping[str, int]) -> Iterator[str]:
    """Pieces of SentencePiece that the vocabulary does not have, in a line that tells how many."""
    if lacking := _missing(model, vocabulary):
        shown = list_names(map(shorten, lacking), _SHOWN)
        yield f"{path.name}: {len(lacking)} of its pieces are not in the vocabulary, and read as unknown ({shown})"


def _missing(model: bytes, vocabulary: Mapping[str, int]) -> list[str]:
    normal = (piece.text for piece in pieces(model) if piece.kind == PieceKind.NORMAL)
    return [piece for piece in normal if piece not in vocabulary]


def named(
    vocabulary: Mapping[str, int], order: Rearranged, first: Sequence[int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What our ids behind the control tokens are called, and which of these are symbols: those of `first`.

    A piece that has the name of one of our control tokens and is another gets angles around it. Ids without a piece
    have their number for a name.
    """
    pieces_by_id = {each: piece for piece, each in vocabulary.items()}
    names: list[str] = []
    taken = {*vocabulary, *CONTROL_PIECES}
    for row in order.rows[len(CONTROL_PIECES) :]:
        name = pieces_by_id[row] if row in pieces_by_id else number_name(row, taken)
        while name in CONTROL_PIECES:
            name = f"<{name}>"
        names.append(name)
        taken.add(name)
    # A special token that is one of our control tokens needs no symbol.
    behind_controls = order.rows[len(CONTROL_PIECES) : len(CONTROL_PIECES) + len(first)]
    return tuple(names), tuple(names[: len(set(first) & set(behind_controls))])


def unspoken(vocabulary: Mapping[str, int]) -> list[int]:
    """Ids of tokens that are not text, beside those that all systems have."""
    return [vocabulary[piece] for piece in ("<s>", "<mask>") if piece in vocabulary]


def added_tokens(folder: HuggingFaceFolder) -> dict[str, int]:
    """Tokens with ids that tokenizer files tell beside the vocabulary, such as those of languages."""
    found = {name: _id(field) for name, field in folder.fields("added_tokens.json").items()}
    for number, token in folder.told("tokenizer_config.json", "added_tokens_decoder").fields().items():
        if not number.isdecimal():
            raise Field(token.path, "a key of added_tokens_decoder", number).wrong("the number of a token")
        found[_content(token)] = int(number)
    added = folder.told("tokenizer.json", "added_tokens")
    for token in (Field(added.path, added.name, each) for each in added.items()):
        found[_content(token)] = _id(token.fields().get("id", Field(token.path, "added_tokens.id", None)))
    return found


def special_tokens(folder: HuggingFaceFolder) -> list[str]:
    """Those that follow the vocabulary, in their order; each is a text, or an object that has it."""
    told = folder.told("special_tokens_map.json", "additional_special_tokens")
    each_field = [Field(told.path, told.name, each) for each in told.items()]
    return [str(each.value) if isinstance(each.value, str) else _content(each) for each in each_field]


def _content(token: Field) -> str:
    """The text of a token."""
    found = token.fields().get("content", Field(token.path, f"{token.name}.content", None))
    if (text := found.text()) is None:
        raise found.wrong("a text")
    return text


def _id(field: Field) -> int:
    if (token := field.token()) is None:
        raise field.wrong("one token")
    return token
