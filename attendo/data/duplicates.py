"""Finds equal pairs by hash in bounded memory: hashes are split into buckets on disk, and each bucket is sorted.

Two different pairs have the same hash of 64 bits with probability 5e-20. Among a billion pairs, some such case has a
probability of 3%, and costs one pair.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attendo import atomic_files

PairKeys = NDArray[np.uint64]
BUCKET_PAIRS = 4_000_000  # pairs that are sorted at once, with 40 bytes each
_CHUNK_PAIRS = 500_000  # pairs that are split into buckets at once


def pair_keys(pairs: Sequence[tuple[str, str]]) -> PairKeys:
    """Return a hash for each pair."""
    texts = (f"{source}\0{target}".encode() for source, target in pairs)
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), "<u8")


def mark_duplicates(blocks: Iterable[tuple[int, PairKeys]], pairs: int, path: Path) -> None:
    """Write a bit for each pair: 1 if an equal one came earlier. A block is the number of its first pair, and keys."""
    buckets = max(1, -(-pairs // BUCKET_PAIRS))
    new = atomic_files.temporary_path(path)
    with atomic_files.temporary_folder(path.with_name("buckets")) as folder:
        files = [folder / str(number) for number in range(buckets)]
        _split(blocks, files)
        with new.open("wb") as file:
            file.truncate(-(-pairs // 8))
        bits = np.memmap(new, np.uint8, "r+") if pairs else np.zeros(0, np.uint8)
        for each in files:
            rows = np.fromfile(each, "<u8").reshape(-1, 2)
            order = np.argsort(rows[:, 0], kind="stable")  # equal keys keep their order
            keys = rows[order, 0]
            repeated = rows[order[1:][keys[1:] == keys[:-1]], 1]
            np.bitwise_or.at(
                bits,
                (repeated >> np.uint64(3)).astype(np.int64),
                np.uint8(1) << (repeated & np.uint64(7)).astype(np.uint8),
            )
            each.unlink()
        if isinstance(bits, np.memmap):
            bits.flush()
    atomic_files.move_into_place(new, path)


class DuplicateMarks:
    """The bits that `mark_duplicates` wrote. Without a file no pair is a duplicate."""

    def __init__(self, path: Path) -> None:
        self._path = path if path.is_file() else None

    def read(self, first: int, pairs: int) -> NDArray[np.bool_]:
        """Return whether each of these pairs repeats an earlier one."""
        if self._path is None or not pairs:
            return np.zeros(pairs, np.bool_)
        start = first // 8
        packed = np.fromfile(self._path, np.uint8, (first + pairs - 1) // 8 - start + 1, offset=start)
        bits = np.unpackbits(packed, bitorder="little")[first - 8 * start :]
        return bits[:pairs].astype(np.bool_)


def _split(blocks: Iterable[tuple[int, PairKeys]], files: Sequence[Path]) -> None:
    """Append the key and the number of every pair to the file of its bucket."""
    with ExitStack() as stack:
        outputs = [stack.enter_context(path.open("wb")) for path in files]
        waiting: list[NDArray[np.uint64]] = []
        for first, keys in blocks:
            numbers = np.arange(first, first + len(keys), dtype=np.uint64)
            waiting.append(np.stack([keys, numbers], axis=1))
            if sum(map(len, waiting)) >= _CHUNK_PAIRS:
                _append(np.concatenate(waiting), outputs)
                waiting.clear()
        if waiting:
            _append(np.concatenate(waiting), outputs)


def _append(rows: NDArray[np.uint64], outputs: Sequence[object]) -> None:
    bucket = rows[:, 0] % np.uint64(len(outputs))
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(1, len(outputs), dtype=np.uint64))
    for part, file in zip(np.split(rows[order], ends), outputs, strict=True):
        part.astype("<u8").tofile(file)  # type: ignore[arg-type]
