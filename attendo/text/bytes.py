"""UTF-8 bytes as tokens: supports any language without training, with long sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attendo.text.tokenizer import (
    CONTROL_PIECES,
    UNK,
    UNKNOWN_TEXT,
    BaseTokenizer,
    parse_symbols,
    replace_newlines,
    require_unicode,
    split_at_symbols,
    strip_special_ids,
    validate_special_tokens,
    write_header,
)


@dataclass(frozen=True)
class Bytes(BaseTokenizer):
    """Ids are control pieces, symbols, then 256 bytes. A text without line breaks is restored exactly."""

    kind: ClassVar[str] = "bytes"
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", validate_special_tokens(self.symbols))

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Bytes":
        """Read the tokenizer of a file whose header is already parsed. A fault raises a `ModelError`."""
        return cls(parse_symbols(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self._first_byte + 256

    def encode(self, text: str) -> list[int]:
        """Return one id per byte. A line break is read as a space."""
        require_unicode(text)
        ids: list[int] = []
        for position, part in enumerate(split_at_symbols(replace_newlines(text), self.symbols)):
            if position % 2:
                ids.append(len(CONTROL_PIECES) + self.symbols.index(part))
            else:
                ids.extend(self._first_byte + byte for byte in part.encode())
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Invalid UTF-8 becomes U+FFFD, line breaks become spaces."""
        content = b"".join(self._to_bytes(each) for each in strip_special_ids(ids, self.vocab_size))
        return replace_newlines(content.decode("utf-8", errors="replace"))

    def unknown(self, text: str) -> list[str]:
        """Return an empty list: every character has bytes."""
        return []

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, symbols=self.symbols)]

    @property
    def _first_byte(self) -> int:
        return len(CONTROL_PIECES) + len(self.symbols)

    def _to_bytes(self, piece_id: int) -> bytes:
        if piece_id >= self._first_byte:
            return bytes([piece_id - self._first_byte])
        return (UNKNOWN_TEXT if piece_id == UNK else self.symbols[piece_id - len(CONTROL_PIECES)]).encode()

    def _piece_text(self, piece_id: int) -> str:
        """Return an ASCII character as it is, another byte as `<0xE4>`."""
        byte = piece_id - self._first_byte
        return chr(byte) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>"
