"""Base classes of tokenizers with a list of pieces, and the list built from text."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from attendo.errors import DataError, UsageError
from attendo.text.tokenizer import (
    CONTROL_PIECES,
    UNK,
    UNKNOWN_TEXT,
    BaseTokenizer,
    is_unicode,
    parse_pieces,
    parse_symbols,
    split_between_symbols,
    strip_special_ids,
    validate_special_tokens,
    write_header,
)


class VocabularyTokenizer(BaseTokenizer):
    """A tokenizer with a list of pieces. `entries` follow the control pieces, symbols first.

    The control pieces have the first ids and are not looked up, so no text maps to them.
    """

    entries: tuple[str, ...]
    _ids: dict[str, int]

    def __post_init__(self) -> None:
        validate_special_tokens(self.symbols)
        ids = {piece: number for number, piece in enumerate(self.entries, start=len(CONTROL_PIECES))}
        object.__setattr__(self, "_ids", ids)

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return len(CONTROL_PIECES) + len(self.entries)

    def encode(self, text: str) -> list[int]:
        """Return one id per piece, UNK for a piece that is not in the vocabulary."""
        return [self._ids.get(piece, UNK) for piece in self._split(text)]

    def unknown(self, text: str) -> list[str]:
        """Return the pieces that are not in the vocabulary."""
        return [piece for piece in self._split(text) if piece not in self._ids]

    @abstractmethod
    def _split(self, text: str) -> Iterable[str]:
        """Return the pieces of a text, in the vocabulary or not."""

    def _entry(self, piece_id: int) -> str:
        return self.entries[piece_id - len(CONTROL_PIECES)]

    def _piece_text(self, piece_id: int) -> str:
        return self._entry(piece_id)


@dataclass(frozen=True)
class RuleTokenizer(VocabularyTokenizer):
    """Splits text by a fixed rule. The most frequent pieces of a text are its vocabulary. Subclasses have the rule."""

    separator: ClassVar[str] = ""  # between two pieces of a text
    unknown_text: ClassVar[str] = UNKNOWN_TEXT  # text of UNK
    required: ClassVar[tuple[str, ...]] = ()  # pieces of every vocabulary
    kind: ClassVar[str]
    entries: tuple[str, ...]
    symbols: tuple[str, ...] = ()  # the first entries
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    @classmethod
    def build(cls, texts: Iterable[str], max_size: int | None = None, symbols: Sequence[str] = ()) -> Self:
        """Build from the most frequent pieces. `max_size` limits the vocabulary, control pieces included."""
        special_tokens = validate_special_tokens(symbols)
        pieces = (piece for text in texts for piece in cls.split(text, special_tokens))
        return cls(select_pieces(pieces, max_size, (*special_tokens, *cls.required)), special_tokens)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> Self:
        """Read the tokenizer of a file whose header is already parsed. A fault raises a `ModelError`."""
        entries = parse_pieces(path, header, cls._from_disk, cls._is_piece, cls.required)
        return cls(entries, parse_symbols(path, header))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text. It is exact if no id is UNK."""
        text_ids = strip_special_ids(ids, self.vocab_size)
        return self.separator.join(self.unknown_text if each == UNK else self._entry(each) for each in text_ids)

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, [*map(self._to_disk, self.entries)], self.symbols)]

    @classmethod
    def split(cls, text: str, symbols: tuple[str, ...] = ()) -> Iterable[str]:
        """Return the pieces of a text. A symbol is one piece."""
        return split_between_symbols(text, symbols, cls._split_text) if symbols else cls._split_text(text)

    def _split(self, text: str) -> Iterable[str]:
        return self.split(text, self.symbols)

    @staticmethod
    def _split_text(text: str) -> Iterable[str]:
        """Return the pieces of a text without symbols."""
        return text

    @staticmethod
    def _is_piece(piece: str) -> bool:
        return len(piece) == 1

    @staticmethod
    def _to_disk(piece: str) -> str:
        """Return a piece as it is written to the file."""
        return piece

    @staticmethod
    def _from_disk(escaped: str) -> str:
        return escaped


def select_pieces(pieces: Iterable[str], max_size: int | None, required: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return entries for at most `max_size` ids, control pieces included: `required`, then by count, ties by text."""
    smallest = len(CONTROL_PIECES) + len(required) + 1
    if max_size is not None and max_size < smallest:
        raise UsageError("vocabulary_too_small", size=max_size, minimum=smallest)
    counts = Counter(pieces)
    if not counts:
        raise DataError("vocabulary_text_empty")
    for piece in counts:
        if not is_unicode(piece):
            raise DataError("piece_unpaired_surrogate", piece=piece)
    ranked = sorted(counts.keys() - set(required), key=lambda piece: (-counts[piece], piece))
    limit = None if max_size is None else max_size - len(CONTROL_PIECES) - len(required)
    return (*required, *ranked[:limit])
