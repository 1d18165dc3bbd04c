"""Running text: a file that is read whole, line breaks and all, one block after the other."""

import codecs
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import chain
from pathlib import Path

from attendo.data.parallel import open_binary
from attendo.errors import DataError

BLOCK_CHARACTERS = 1 << 18


@dataclass(frozen=True)
class Block:
    """Neighbouring text."""

    text: str
    line: int  # that it begins in, from 1
    whole: bool  # it begins with the text itself, or with the break before a line


@dataclass(frozen=True)
class Extent:
    """How much text there is."""

    characters: int
    lines: int


@dataclass(frozen=True)
class RunningText:
    """One file, plain, .gz or .xz; read more than once, and the same each time."""

    path: Path

    def blocks(self) -> Iterator[Block]:
        """All of it, cut before line breaks; a line that is longer than a block is cut where that is full.

        Text that is not UTF-8 or holds NUL is a `DataError`: what stood around it would become neighbours.
        """
        rest, line, whole = "", 1, True
        for text in chain(self._decoded(), ("",)):
            rest += text
            while rest and (len(rest) > BLOCK_CHARACTERS or not text):
                end = len(rest) if len(rest) <= BLOCK_CHARACTERS else rest.rfind("\n", 1, BLOCK_CHARACTERS + 1)
                end = end if end > 0 else BLOCK_CHARACTERS
                yield Block(rest[:end], line, whole)
                line, whole, rest = line + rest.count("\n", 0, end), rest[end : end + 1] == "\n", rest[end:]

    def extent(self) -> Extent:
        """Reads all of it."""
        characters, breaks = 0, 0
        for block in self.blocks():
            characters, breaks = characters + len(block.text), breaks + block.text.count("\n")
        if not characters:
            raise DataError(f"{self.path} is empty: there is nothing to read")
        return Extent(characters, breaks + 1)

    def _decoded(self) -> Iterator[str]:
        """Without a byte order mark, and lines that end in a line feed alone."""
        decoder, lines, held = codecs.getincrementaldecoder("utf-8-sig")(), 0, ""
        with open_binary(self.path) as file:
            for content in chain(self._read(file), (b"",)):
                try:
                    text = held + decoder.decode(content, not content)
                except UnicodeDecodeError as error:
                    number = lines + held.count("\n") + error.object[: error.start].count(b"\n") + 1
                    raise DataError(
                        f"{self.path} line {number} is not UTF-8: convert the file, or take the line out"
                    ) from None
                held = "\r" if text.endswith("\r") and content else ""
                text = text.removesuffix(held).replace("\r\n", "\n")
                if "\0" in text:
                    number = lines + text.count("\n", 0, text.index("\0")) + 1
                    raise DataError(f"{self.path} line {number} holds NUL: is it text? take the line out")
                lines += text.count("\n")
                if text:
                    yield text

    def _read(self, file: BufferedIOBase) -> Iterator[bytes]:
        try:
            while content := file.read(BLOCK_CHARACTERS):
                yield content
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise DataError(f"{self.path} cannot be read: {error}") from None
