"""Text files, line by line; plain, .gz or .xz."""

import codecs
import gzip
import lzma
import shlex
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

from attendo.errors import DataError


def read_lines(path: Path) -> Iterator[str]:
    with open_binary(path) as file:
        yield from numbered_lines(file, path)


def numbered_lines(file: Iterable[bytes], name: Path | str) -> Iterator[str]:
    """Text without its line end. Lines end in a line feed alone; other Unicode separators are part of the text."""
    for number, line in enumerate(raw_lines(file, name), start=1):
        yield _decoded(line, name, number)


def raw_pairs(source: Path, target: Path) -> Iterator[tuple[bytes, bytes]]:
    """The lines of two files side by side, before anyone has asked whether they are text.

    Files of different length are an error, never aligned by guess.
    """
    with ExitStack() as stack:
        left, right = (raw_lines(stack.enter_context(open_binary(path)), path) for path in (source, target))
        number = 0
        for number, (first, second) in enumerate(zip_longest(left, right), start=1):
            if first is None or second is None:
                short, long = (source, target) if first is None else (target, source)
                raise DataError(
                    "file_line_counts_differ", short=short, short_lines=number - 1, long=long, long_lines=number
                )
            yield first, second
        if number == 0:
            raise DataError("file_is_empty", path=source)


def raw_lines(file: Iterable[bytes], name: Path | str) -> Iterator[bytes]:
    """Lines without their end. A byte order mark at the very start is no text; that of UTF-16 is an error."""
    lines = iter(file)
    try:
        for line in lines:
            if isinstance(name, Path):
                refuse_utf16(line, name)
            yield line.removeprefix(codecs.BOM_UTF8).rstrip(b"\n").removesuffix(b"\r")
            break
        for line in lines:
            yield line.rstrip(b"\n").removesuffix(b"\r")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError("file_read_failed", path=name, reason=error) from None


def open_binary(path: Path) -> BufferedIOBase:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        return opener(path, "rb")  # type: ignore[operator]
    except OSError as error:
        raise DataError("file_open_failed", path=path, reason=error.strerror or error) from None


def refuse_utf16(first: bytes, path: Path) -> None:
    """`first` is what a file begins with."""
    marks = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"}  # before those that they begin with
    marks |= {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    for mark, encoding in marks.items():
        if first.startswith(mark):
            raise DataError("file_is_utf16_or_utf32", path=path, encoding=encoding, command=conversion(path, encoding))


def conversion(path: Path, encoding: str) -> str:
    """The command that writes a file anew as UTF-8."""
    pack = {".gz": "gzip", ".xz": "xz"}.get(path.suffix)
    plain = path.with_suffix("") if pack else path
    new = shlex.quote(f"{plain.with_suffix('')}.utf8{plain.suffix}{path.suffix if pack else ''}")
    given = shlex.quote(str(path))
    if pack is None:
        return f"iconv -f {encoding} -t UTF-8 {given} > {new}"
    return f"{pack} -dc {given} | iconv -f {encoding} -t UTF-8 | {pack} > {new}"


def _decoded(line: bytes, name: Path | str, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise not_utf8(name, number) from None


def not_utf8(name: Path | str, line: int) -> DataError:
    """Latin-1 is what such text usually is."""
    command = f"; if it is Latin-1: {conversion(name, 'LATIN1')}" if isinstance(name, Path) else ""
    return DataError("line_not_utf8", path=name, line=line, advice=command)
