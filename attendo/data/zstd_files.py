"""Reads and writes Zstandard files, with the package zstandard of the extra `corpora`."""

import io
from pathlib import Path
from typing import Any, BinaryIO, Literal

from attendo.errors import require_package

_CHUNK = 1 << 17  # compressed bytes per read


def open_zstd(path: Path, mode: Literal["rb"] = "rb") -> io.BufferedReader:
    """Open a .zst file for reading. A damaged or truncated file is an `OSError` or an `EOFError` when it is read."""
    require_zstd()
    return io.BufferedReader(_Decompressed(path.open(mode)))


def compress_zstd(file: BinaryIO) -> Any:
    """Return a writer that compresses into `file`."""
    import zstandard

    return zstandard.ZstdCompressor().stream_writer(file, closefd=False)


def require_zstd() -> None:
    require_package("zstandard", "corpora", "a .zst file")


class _Decompressed(io.RawIOBase):
    """The content of a file of one or more frames. zstandard's own reader takes a truncated file for a complete one."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file, self._error, self._content = file, zstandard.ZstdError, memoryview(b"")
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None  # None between two frames
        self._compressed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            self._compressed = self._compressed or self._file.read(_CHUNK)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("compressed file ended before the end of its last frame")
                return 0
            self._decompress()
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size

    def _decompress(self) -> None:
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            self._content = memoryview(self._frame.decompress(self._compressed))
        except self._error as error:
            raise OSError(str(error)) from None
        self._compressed = self._frame.unused_data
        if self._frame.eof:
            self._frame = None

    def close(self) -> None:
        self._file.close()
        super().close()
