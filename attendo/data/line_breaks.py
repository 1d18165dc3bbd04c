"""Line breaks in running text, also for tokenizers that would read them as spaces: there each is a symbol."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.text import Tokenizer

LINE = "<line>"
KEEPING = "characters"  # the kind that has line breaks of its own

# Kinds whose words bring the space before them: behind a line break they get one too, or a word that begins a line
# would be cut into other pieces than elsewhere.
_SPACE_BEFORE = ("words", "sentencepiece", "foreign_pieces", "byte_pairs")


def keeping_line_breaks(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer for text with line breaks, where it has the symbol for them."""
    return LineBreaks(tokenizer) if LINE in tokenizer.symbols else tokenizer


@dataclass(frozen=True)
class LineBreaks:
    """Another tokenizer, with a line break wherever that has the symbol."""

    inner: Tokenizer

    @property
    def kind(self) -> str:
        return self.inner.kind

    @property
    def vocab_size(self) -> int:
        return self.inner.vocab_size

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.inner.symbols

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(self._marked(text))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return self.inner.encode_many([self._marked(text) for text in texts])

    def decode(self, ids: Sequence[int]) -> str:
        text = self.inner.decode(ids)
        return text.replace(f"{LINE} ", "\n").replace(LINE, "\n") if self._spaces else text.replace(LINE, "\n")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.inner.pieces(ids)

    def unknown(self, text: str) -> list[str]:
        return self.inner.unknown(self._marked(text))

    def save(self, folder: Path, name: str) -> list[Path]:
        return self.inner.save(folder, name)

    @property
    def _spaces(self) -> bool:
        return self.inner.kind in _SPACE_BEFORE

    def _marked(self, text: str) -> str:
        if self._spaces:
            text = re.sub("\n(?=[^\n])", f"{LINE} ", text)
        return text.replace("\n", LINE)
