"""What tokenizers have in common that were made by another system: pieces and ids are given, not learnt here."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from attendo.text.files import header_path, piece_list, symbol_list
from attendo.text.symbols import checked_symbols
from attendo.text.tokenizer import CONTROL_PIECES, EOS, UNK, spoken_ids


class GivenVocabulary:
    """`entries` stand behind the control pieces, symbols first. Symbols are tokens that have an id but no text."""

    entries: tuple[str, ...]
    symbols: tuple[str, ...]
    _ids: dict[str, int]

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

    @abstractmethod
    def _cut(self, text: str) -> Iterable[str]:
        """The pieces of a text, known or not."""

    def _number(self) -> None:
        checked_symbols(self.symbols)
        ids = {piece: number for number, piece in enumerate(self.entries, start=len(CONTROL_PIECES))}
        object.__setattr__(self, "_ids", ids)

    def _spoken(self, ids: Sequence[int]) -> list[int]:
        """Those that have a text, or stand for one."""
        return [each for each in spoken_ids(ids, self.vocab_size) if not EOS < each <= EOS + len(self.symbols)]

    def _entry(self, number: int) -> str:
        return self.entries[number - len(CONTROL_PIECES)]


def read_entries(folder: Path, name: str, header: dict[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Entries and symbols of `NAME.tokenizer.json`; a fault is a `ModelError`."""
    path = header_path(folder, name)
    return piece_list(path, header, from_disk=str, is_piece=bool), symbol_list(path, header)
