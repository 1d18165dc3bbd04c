"""Every Unicode code point as a piece of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attendo.text.files import piece_list, write_header
from attendo.text.tokenizer import CONTROL_PIECES, EOS, UNK, UNKNOWN_TEXT, checked_ids, label, spoken_ids
from attendo.text.vocabulary import Vocabulary, most_frequent


@dataclass(frozen=True)
class Characters:
    """One id per code point."""

    kind: ClassVar[str] = "characters"
    vocabulary: Vocabulary

    @classmethod
    def build(cls, texts: Iterable[str], limit: int | None = None) -> "Characters":
        """The most frequent characters of the texts; `limit` is the largest vocabulary, control pieces included."""
        return cls(most_frequent((character for text in texts for character in text), limit))

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Characters":
        """The tokenizer in a file whose header was read; a fault is a `ModelError`."""
        return cls(Vocabulary(piece_list(path, header, from_disk=str, is_piece=_is_character)))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self.vocabulary.size

    def encode(self, text: str) -> list[int]:
        """One id per character, UNK for a character that is not in the vocabulary."""
        return self.vocabulary.ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text where no id is UNK."""
        spoken = spoken_ids(ids, self.vocab_size)
        return "".join(UNKNOWN_TEXT if each == UNK else self.vocabulary.entry(each) for each in spoken)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Characters, white space made visible, control pieces by name."""
        checked = checked_ids(ids, self.vocab_size)
        return [CONTROL_PIECES[each] if each <= EOS else label(self.vocabulary.entry(each)) for each in checked]

    def unknown(self, text: str) -> list[str]:
        """The characters that are not in the vocabulary."""
        return self.vocabulary.missing(text)

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, list(self.vocabulary.entries))]


def _is_character(piece: str) -> bool:
    return len(piece) == 1
