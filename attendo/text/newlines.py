"""Line breaks in running text: a symbol for tokenizers that would read them as spaces."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text.config import TokenizerConfig

NEWLINE_SYMBOL = "<line>"
NEWLINE_KIND = "characters"  # the kind that encodes line breaks as characters

# Kinds whose words include the preceding space. A space is added after a line break too, so that a word at the start
# of a line has the same pieces as elsewhere.
SPACE_PREFIX_KINDS = ("words", "sentencepiece", "foreign_pieces", "byte_pairs")


def add_newline_symbol(config: TokenizerConfig) -> TokenizerConfig:
    """Return settings for one vocabulary, with a symbol for line breaks if the kind needs it."""
    if config.kind == "spaced":
        raise UsageError("spaced_tokenizer_loses_whitespace")
    if config.joint or config.target_kind is not None or config.target_file is not None:
        name = "joint" if config.joint else "target_file" if config.target_file else "target_kind"
        raise UsageError("tokenizer_setting_needs_pairs", option=name)
    if config.dropout:
        raise UsageError("dropout_with_running_text")
    symbols = (
        config.symbols
        if config.kind == NEWLINE_KIND or NEWLINE_SYMBOL in config.symbols
        else (*config.symbols, NEWLINE_SYMBOL)
    )
    return config.replace(joint=True, symbols=symbols)


@dataclass(frozen=True)
class NewlineTokenizer:
    """Wraps a tokenizer and encodes line breaks as its newline symbol, if it has one.

    CR LF is read as a line feed, as in `TextFile`.
    """

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
        return self.inner.encode(self._mark_newlines(text))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return self.inner.encode_many([self._mark_newlines(text) for text in texts])

    def decode(self, ids: Sequence[int]) -> str:
        text = self.inner.decode(ids)
        if NEWLINE_SYMBOL not in self.symbols:
            return text
        return (
            text.replace(f"{NEWLINE_SYMBOL} ", "\n").replace(NEWLINE_SYMBOL, "\n")
            if self._adds_space
            else text.replace(NEWLINE_SYMBOL, "\n")
        )

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.inner.pieces(ids)

    def unknown(self, text: str) -> list[str]:
        return self.inner.unknown(self._mark_newlines(text))

    def save(self, folder: Path, name: str) -> list[Path]:
        return self.inner.save(folder, name)

    @property
    def _adds_space(self) -> bool:
        return self.inner.kind in SPACE_PREFIX_KINDS

    def _mark_newlines(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        if NEWLINE_SYMBOL not in self.symbols:
            return text
        if self._adds_space:
            text = re.sub("\n(?=[^\n])", f"{NEWLINE_SYMBOL} ", text)
        return text.replace("\n", NEWLINE_SYMBOL)
