"""UTF-8 bytes as tokens: any text of any language, nothing to learn, long sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attendo.text.tokenizer import (
    CONTROL_PIECES,
    EOS,
    UNK,
    UNKNOWN_TEXT,
    checked_ids,
    checked_symbols,
    label,
    one_line,
    require_unicode,
    split_at,
    spoken_ids,
)
from attendo.text.tokenizer_files import symbol_list, write_header


@dataclass(frozen=True)
class Bytes:
    """After the control pieces the symbols, then the 256 bytes; a text without line breaks comes back exactly."""

    kind: ClassVar[str] = "bytes"
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", checked_symbols(self.symbols))

    @classmethod
    def read(cls, path: Path, header: dict[str, object]) -> "Bytes":
        """The tokenizer in a file whose header was read; a fault is a `ModelError`."""
        return cls(symbol_list(path, header))

    @property
    def vocab_size(self) -> int:
        """The number of ids, control pieces included."""
        return self._first_byte + 256

    def encode(self, text: str) -> list[int]:
        """One id per byte; a line break is read as a space."""
        require_unicode(text)
        ids: list[int] = []
        for position, part in enumerate(split_at(one_line(text), self.symbols)):
            if position % 2:
                ids.append(len(CONTROL_PIECES) + self.symbols.index(part))
            else:
                ids.extend(self._first_byte + byte for byte in part.encode())
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are no UTF-8 read as U+FFFD, line breaks as spaces."""
        content = b"".join(self._bytes(each) for each in spoken_ids(ids, self.vocab_size))
        return one_line(content.decode("utf-8", errors="replace"))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """ASCII characters as they are, other bytes as `<0xE4>`, control pieces by name."""
        return [self._label(each) for each in checked_ids(ids, self.vocab_size)]

    def unknown(self, text: str) -> list[str]:
        """Nothing: every character has bytes."""
        return []

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write `NAME.tokenizer.json`."""
        return [write_header(folder, name, self.kind, symbols=self.symbols)]

    @property
    def _first_byte(self) -> int:
        return len(CONTROL_PIECES) + len(self.symbols)

    def _bytes(self, spoken: int) -> bytes:
        if spoken >= self._first_byte:
            return bytes([spoken - self._first_byte])
        return (UNKNOWN_TEXT if spoken == UNK else self._named(spoken)).encode()

    def _label(self, piece_id: int) -> str:
        if piece_id < self._first_byte:
            return self._named(piece_id)
        byte = piece_id - self._first_byte
        return label(chr(byte)) if 0x20 <= byte < 0x7F else f"<0x{byte:02X}>"

    def _named(self, piece_id: int) -> str:
        return CONTROL_PIECES[piece_id] if piece_id <= EOS else self.symbols[piece_id - len(CONTROL_PIECES)]
