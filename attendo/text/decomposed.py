"""Characters taken apart: a letter and its marks, a Korean syllable and its letters, as pieces of their own."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import ClassVar

from attendo.text.characters import Characters


class Decomposed(Characters):
    """Reads the parts of Unicode's canonical decomposition (NFD), and writes the characters that they make up (NFC).

    What words have in common shows better in parts: é and e, 한 and 하.
    """

    kind: ClassVar[str] = "decomposed"

    def decode(self, ids: Sequence[int]) -> str:
        """The text with its characters put together, where no id is UNK."""
        return unicodedata.normalize("NFC", super().decode(ids))

    @staticmethod
    def _apart(text: str) -> Iterable[str]:
        return unicodedata.normalize("NFD", text)
