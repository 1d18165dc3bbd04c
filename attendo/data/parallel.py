"""Parallel text files, line by line; plain, .gz or .xz."""

import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

from attendo.errors import DataError


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """One pair a line. Files of different length are an error, never aligned by guess."""
    with ExitStack() as stack:
        sides = (numbered_lines(stack.enter_context(open_binary(path)), path) for path in (source, target))
        number = 0
        for number, (left, right) in enumerate(zip_longest(*sides), start=1):
            if left is None or right is None:
                short, long = (source, target) if left is None else (target, source)
                raise DataError(
                    f"{short} ends after {number - 1} lines but {long} goes on: they must have equally many"
                )
            yield left, right
        if number == 0:
            raise DataError(f"{source} is empty: there is nothing to read")


def read_lines(path: Path) -> Iterator[str]:
    with open_binary(path) as file:
        yield from numbered_lines(file, path)


def numbered_lines(file: Iterable[bytes], name: Path | str) -> Iterator[str]:
    """Text without its line end. Lines end in a line feed alone; other Unicode separators are part of the text."""
    try:
        for number, line in enumerate(file, start=1):
            try:
                yield line.rstrip(b"\n").removesuffix(b"\r").decode("utf-8")
            except UnicodeDecodeError:
                raise DataError(f"{name} line {number} is not UTF-8: convert the file, or take the line out") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{name} cannot be read: {error}") from None


def open_binary(path: Path) -> BufferedIOBase:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        return opener(path, "rb")  # type: ignore[operator]
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror or error}") from None
