"""Shards: pairs of token ids in binary files, read through memory maps.

header · source offsets · target offsets · source ids · target ids        all numbers little-endian

There are pairs + 1 offsets of 4 bytes per side. Ids have 2 bytes if the vocabularies allow it, otherwise 4.

Links of words, if a corpus has alignments, are in shards of their own. Their sources are the links of each pair, source
and target word in turn, and their targets are empty.
"""

import hashlib
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attendo.data.batch import Example, RaggedArray
from attendo.errors import DataError
from attendo.settings import Settings

MAGIC = b"attshard"
VERSION = 1
SHARD_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
LINK_BYTES = 4
MAX_LINKED_WORDS = 10**6  # words that a link can name
SAMPLED_CHUNKS = 3  # per shard, checked at every opening
_HEADER = struct.Struct("<8sIIQQQ")
RaggedPair = tuple[RaggedArray, RaggedArray]


class ShardRecord(Settings):
    """Index entry of a shard."""

    file: str
    bytes: int
    pairs: int
    source_tokens: int
    target_tokens: int
    sha256: str
    chunks: tuple[str, ...]  # SHA-256 per CHUNK_BYTES, so that a chunk can be checked alone


@dataclass(frozen=True)
class _ShardLayout:
    """Byte layout of a shard."""

    id_bytes: int
    pairs: int
    source_tokens: int
    target_tokens: int

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """Byte positions of source offsets, target offsets, source ids and target ids."""
        offsets = 4 * (self.pairs + 1)
        ids = _HEADER.size + 2 * offsets
        return _HEADER.size, _HEADER.size + offsets, ids, ids + self.id_bytes * self.source_tokens

    @property
    def size(self) -> int:
        """File size in bytes."""
        return self.starts[3] + self.id_bytes * self.target_tokens

    @property
    def header(self) -> bytes:
        return _HEADER.pack(MAGIC, VERSION, self.id_bytes, self.pairs, self.source_tokens, self.target_tokens)

    def grow(self, pairs: int, source_tokens: int, target_tokens: int) -> "_ShardLayout":
        counts = (self.pairs + pairs, self.source_tokens + source_tokens, self.target_tokens + target_tokens)
        return _ShardLayout(self.id_bytes, *counts)


class ShardWriter:
    """Collects pairs and writes a shard when it reaches the size limit."""

    def __init__(self, folder: Path, name: str, id_bytes: int, shard_bytes: int = SHARD_BYTES) -> None:
        self._bytes_written = 0
        self._folder, self._name, self._limit = folder, name, shard_bytes
        self._records: list[ShardRecord] = []
        self._layout = _ShardLayout(id_bytes, 0, 0, 0)  # of the next shard
        self._lengths: tuple[list[NDArray[np.int64]], ...] = ([], [])
        self._ids: tuple[list[NDArray[np.unsignedinteger]], ...] = ([], [])

    @property
    def size(self) -> int:
        """Size of all shards in bytes, including unwritten data."""
        return self._bytes_written + (self._layout.size if self._layout.pairs else 0)

    def add(self, source: RaggedArray, target: RaggedArray) -> None:
        for side, sequences in enumerate((source, target)):
            self._lengths[side].append(sequences.lengths)
            self._ids[side].append(sequences.ids.astype(f"<u{self._layout.id_bytes}"))
        self._layout = self._layout.grow(len(source), len(source.ids), len(target.ids))
        if self._layout.size >= self._limit:
            self._write()

    def close(self) -> tuple[ShardRecord, ...]:
        """Write the remaining pairs and return the records of all shards."""
        if self._layout.pairs:
            self._write()
        return tuple(self._records)

    def _write(self) -> None:
        layout = self._layout
        path = self._folder / f"{self._name}-{len(self._records):04d}.shard"
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(layout.header)
            for lengths in self._lengths:
                file.write(np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype("<u4").data)
            for ids in self._ids:
                file.writelines(part.data for part in ids)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        counts = {"pairs": layout.pairs, "source_tokens": layout.source_tokens, "target_tokens": layout.target_tokens}
        sha256, chunks = _compute_checksums(path)
        self._records.append(ShardRecord(file=path.name, bytes=layout.size, sha256=sha256, chunks=chunks, **counts))
        self._bytes_written += layout.size
        self._layout = _ShardLayout(layout.id_bytes, 0, 0, 0)
        self._lengths, self._ids = ([], []), ([], [])


class ShardSet:
    """The pairs of several shards as one list. Data is read from disk on access."""

    def __init__(
        self, folder: Path, records: Sequence[ShardRecord], vocab_sizes: tuple[int, int], verify: bool = False
    ) -> None:
        """Check every header and size, and sampled chunks. With `verify`, check all content."""
        self._shards = [_Shard(folder / record.file, record, vocab_sizes, verify) for record in records]
        self._starts = np.cumsum([0, *(record.pairs for record in records)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def example(self, number: int) -> Example:
        source, target = self.read(number, number + 1)
        return Example(source[0], target[0])

    def read(self, first: int, last: int) -> RaggedPair:
        """Return copies of the pairs from `first` up to but not including `last`."""
        if not 0 <= first <= last <= len(self):
            raise IndexError(f"pairs {first} to {last} of {len(self)}")
        parts: list[RaggedPair] = []
        while first < last:
            index = int(np.searchsorted(self._starts, first, side="right")) - 1
            start, end = int(self._starts[index]), int(self._starts[index + 1])
            parts.append(self._shards[index].read(first - start, min(last, end) - start))
            first = min(last, end)
        return RaggedArray.concatenate([source for source, _ in parts]), RaggedArray.concatenate(
            [target for _, target in parts]
        )


class _Shard:
    def __init__(self, path: Path, record: ShardRecord, vocab_sizes: tuple[int, int], verify: bool) -> None:
        self._path, self._vocab_sizes = path, vocab_sizes
        self._map = _map_file(path, record.bytes)
        self._layout = self._read_layout(record)
        for chunk in range(len(record.chunks)) if verify else _sample_chunks(len(record.chunks)):
            content = self._map[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
            if hashlib.sha256(content).hexdigest() != record.chunks[chunk]:
                raise DamagedDataError("prepared_file_checksum_mismatch", path=path)
        self._release()

    def read(self, first: int, last: int) -> RaggedPair:
        source_offsets, target_offsets, source_ids, target_ids = self._layout.starts
        source = self._read_side(first, last, source_offsets, source_ids, 0)
        target = self._read_side(first, last, target_offsets, target_ids, 1)
        self._release()
        return source, target

    def _release(self) -> None:
        """Release the memory of the pages read. They stay in the page cache.

        Call it after every read: the system maps many pages around each page touched, up to the whole shard.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _read_side(self, first: int, last: int, offsets_at: int, ids_at: int, side: int) -> RaggedArray:
        layout = self._layout
        tokens = layout.target_tokens if side else layout.source_tokens
        offsets = self._read_integers("<u4", offsets_at + 4 * first, last - first + 1).astype(np.int64)
        if offsets[-1] > tokens or (np.diff(offsets) < 0).any():
            raise DamagedDataError("shard_offsets_out_of_order", path=self._path)
        width = layout.id_bytes
        ids = self._read_integers(f"<u{width}", ids_at + width * int(offsets[0]), int(offsets[-1] - offsets[0]))
        if ids.size and int(ids.max()) >= self._vocab_sizes[side]:
            raise DamagedDataError("shard_id_outside_vocabulary", path=self._path, id=ids.max())
        return RaggedArray(ids.astype(np.int32), offsets - offsets[0])

    def _read_integers(self, dtype: str, start: int, count: int) -> NDArray[np.integer]:
        return np.frombuffer(self._map, np.dtype(dtype), count, start)

    def _read_layout(self, record: ShardRecord) -> _ShardLayout:
        magic, version, id_bytes, *counts = _HEADER.unpack_from(self._map)
        if magic != MAGIC:
            raise DamagedDataError("not_a_shard", path=self._path)
        if version != VERSION:
            raise DamagedDataError("shard_version_unsupported", path=self._path, version=version, supported=VERSION)
        layout = _ShardLayout(id_bytes, *counts)
        expected = (record.pairs, record.source_tokens, record.target_tokens)
        chunks = -(-record.bytes // CHUNK_BYTES)
        if id_bytes not in (2, 4) or (layout.size, tuple(counts), len(record.chunks)) != (
            record.bytes,
            expected,
            chunks,
        ):
            raise DamagedDataError("shard_header_mismatch", path=self._path)
        return layout


def _map_file(path: Path, size: int) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size or size < _HEADER.size:
                raise DamagedDataError("shard_size_mismatch", path=path, found=found, size=size)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DamagedDataError("prepared_file_read_failed", path=path, reason=error.strerror) from None


def _sample_chunks(chunks: int) -> list[int]:
    return sorted({round(number * (chunks - 1) / (SAMPLED_CHUNKS - 1)) for number in range(SAMPLED_CHUNKS)})


def _compute_checksums(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of the file and of each chunk."""
    digest, chunks = hashlib.sha256(), []
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            chunks.append(hashlib.sha256(chunk).hexdigest())
    return digest.hexdigest(), tuple(chunks)


class DamagedDataError(DataError):
    """Prepared data is damaged. `fault` is the error without its fix, which depends on who prepared the data."""

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__("prepared_data_damaged", fault=DataError(code, **values))

    @property
    def fault(self) -> DataError:
        fault = self.values["fault"]
        assert isinstance(fault, DataError)
        return fault
