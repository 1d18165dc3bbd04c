"""Characters taken apart: a letter and its marks, a Korean syllable and its letters, as pieces of their own."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from attendo.text.characters import Characters
from attendo.text.symbols import checked_symbols, split_at


class Decomposed(Characters):
    """Reads the parts of Unicode's canonical decomposition (NFD), and writes the characters that they make up (NFC).

    What words have in common shows better in parts: é and e, 한 and 하.
    """

    kind: ClassVar[str] = "decomposed"

    @classmethod
    def build(cls, texts: Iterable[str], limit: int | None = None, symbols: Sequence[str] = ()) -> "Decomposed":
        whole = checked_symbols(symbols)
        plain = Characters.build((_apart(text, whole) for text in texts), limit, whole)
        return cls(plain.vocabulary, plain.symbols)

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Decomposed":
        plain = Characters.read(path, header)
        return cls(plain.vocabulary, plain.symbols)

    def encode(self, text: str) -> list[int]:
        """One id per part, UNK for a part that is not in the vocabulary."""
        return super().encode(_apart(text, self.symbols))

    def decode(self, ids: Sequence[int]) -> str:
        """The text with its characters put together, where no id is UNK."""
        return unicodedata.normalize("NFC", super().decode(ids))

    def unknown(self, text: str) -> list[str]:
        """The parts that are not in the vocabulary."""
        return super().unknown(_apart(text, self.symbols))


def _apart(text: str, symbols: tuple[str, ...]) -> str:
    """Symbols stay as they are."""
    parts = split_at(text, symbols)
    return "".join(part if place % 2 else unicodedata.normalize("NFD", part) for place, part in enumerate(parts))
