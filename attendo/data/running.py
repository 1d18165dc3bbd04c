"""Running text: files that are read whole, line breaks and all, one block after the other."""

import codecs
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import chain
from pathlib import Path

from attendo.data.config import form_of
from attendo.data.parallel import not_utf8, numbered_lines, open_binary, refuse_utf16
from attendo.errors import DataError, MessagePart

BLOCK_CHARACTERS = 1 << 18
END = "\0"  # stands behind each of several documents: no text may hold it


@dataclass(frozen=True)
class Block:
    """Neighbouring text."""

    text: str
    line: int  # that it begins in, from 1
    whole: bool  # it begins with the text itself, or with the break before a line
    path: Path


@dataclass(frozen=True)
class Extent:
    """How much text there is."""

    characters: int
    lines: int


@dataclass(frozen=True)
class RunningText:
    """Files, plain, .gz or .xz; read more than once, and the same each time.

    A line of a .jsonl file is a document, in one of its fields; any other file is one. `END` stands behind each of
    several documents, and nowhere in a single file of text.
    """

    paths: tuple[Path, ...]
    field: str = "text"

    @property
    def name(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    def blocks(self) -> Iterator[Block]:
        """All of it, cut before line breaks; a line that is longer than a block is cut where that is full.

        Text that is not UTF-8 or holds NUL is a `DataError`: what stood around it would become neighbours.
        """
        for path in self.paths:
            if form_of(path) == "jsonl":
                for number, text in self._documents(path):
                    yield from _cut((text, END), path, number)
            else:
                yield from _cut(chain(_decoded(path), (END,) if len(self.paths) > 1 else ()), path)

    def extent(self) -> Extent:
        """Reads all of it."""
        characters, breaks, empty = 0, 0, True
        for block in self.blocks():
            characters, breaks = characters + len(block.text), breaks + block.text.count("\n")
            empty = empty and block.text == END
        if empty:
            raise DataError("file_is_empty", path=self.name)
        return Extent(characters, breaks + 1)

    def _documents(self, path: Path) -> Iterator[tuple[int, str]]:
        """The texts of a .jsonl file with the lines they stand in; lines of white space are passed over."""
        with open_binary(path) as file:
            for number, line in enumerate(numbered_lines(file, path), start=1):
                if line.strip():
                    yield number, self._document(line, MessagePart("line_of_file", path=path, line=number))

    def _document(self, line: str, where: MessagePart) -> str:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError("jsonl_line_not_json", location=where) from None
        text = content.get(self.field) if isinstance(content, dict) else None
        if not isinstance(text, str):
            there = ", ".join(list(content)[:12]) if isinstance(content, dict) else "no fields"
            raise DataError("jsonl_text_field_missing", location=where, field=self.field, fields=there[:200])
        try:
            text.encode()
        except UnicodeError:
            raise DataError("unpaired_surrogate_in_line", location=where) from None
        if END in text:
            raise DataError("jsonl_text_contains_nul", location=where)
        return text.replace("\r\n", "\n")


def _cut(texts: Iterable[str], path: Path, line: int = 1) -> Iterator[Block]:
    rest, whole = "", True
    for text in chain(texts, ("",)):
        rest += text
        while rest and (len(rest) > BLOCK_CHARACTERS or not text):
            end = len(rest) if len(rest) <= BLOCK_CHARACTERS else rest.rfind("\n", 1, BLOCK_CHARACTERS + 1)
            end = end if end > 0 else BLOCK_CHARACTERS
            yield Block(rest[:end], line, whole, path)
            line, whole, rest = line + rest.count("\n", 0, end), rest[end : end + 1] in ("\n", END), rest[end:]


def _decoded(path: Path) -> Iterator[str]:
    """Without a byte order mark, and lines that end in a line feed alone."""
    decoder, lines, held = codecs.getincrementaldecoder("utf-8-sig")(), 0, ""
    with open_binary(path) as file:
        for number, content in enumerate(chain(_read(file, path), (b"",))):
            if number == 0:
                refuse_utf16(content, path)
            try:
                text = held + decoder.decode(content, not content)
            except UnicodeDecodeError as error:
                raise not_utf8(path, lines + held.count("\n") + error.object[: error.start].count(b"\n") + 1) from None
            held = "\r" if text.endswith("\r") and content else ""
            text = text.removesuffix(held).replace("\r\n", "\n")
            if "\0" in text:
                where = lines + text.count("\n", 0, text.index("\0")) + 1
                raise DataError("text_line_contains_nul", path=path, line=where)
            lines += text.count("\n")
            if text:
                yield text


def _read(file: BufferedIOBase, path: Path) -> Iterator[bytes]:
    try:
        while content := file.read(BLOCK_CHARACTERS):
            yield content
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError("file_read_failed", path=path, reason=error) from None
