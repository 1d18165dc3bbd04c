"""Reads safetensors files, either all tensors at once or one at a time.

`TensorFile` does not map the file into memory, so a tensor takes memory only while it is used.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from attendo.errors import ModelError, cut_text

_MAX_HEADER_BYTES = 2 * 1024**2  # of a safetensors file: about 20,000 tensors; a network has hundreds
_CHUNK_BYTES = 1024**2  # glibc gives larger blocks that are often freed back late
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. The header size is checked before the file is parsed."""
    try:
        _check_header_size(path)
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _make_error(path, str(error)) from None


@dataclass(frozen=True)
class StoredTensor:
    """Type, shape and place of a tensor in a safetensors file. `begin` is the offset of its first byte in the file."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    def read(self) -> Tensor:
        return self.rows(0, self.shape[0]) if self.shape else self._read(0, 1).reshape(())

    def rows(self, begin: int, end: int) -> Tensor:
        """Return the rows from `begin` to `end`, without the others."""
        width = math.prod(self.shape[1:])
        return self._read(begin * width, (end - begin) * width).reshape(end - begin, *self.shape[1:])

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows in pieces of about 1 MiB, each with the number of its first row."""
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        count = max(1, _CHUNK_BYTES // max(1, width))
        for begin in range(0, self.shape[0], count):
            yield begin, self.rows(begin, min(begin + count, self.shape[0]))

    def _read(self, first: int, count: int) -> Tensor:
        size, found = self.dtype.itemsize, torch.empty(count, dtype=self.dtype)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.begin + first * size)
                if count and not _fill(file, found.view(torch.uint8).numpy().data):
                    raise _make_error(self.path, "the file is too short")
        except OSError as error:
            raise _make_error(self.path, str(error)) from None
        return found


def list_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a safetensors file by name. Only its header is read."""
    try:
        size = _check_header_size(path)
        with safe_open(path, "pt"):  # the library checks names, shapes, offsets and the size of the file
            pass
        with path.open("rb") as file:
            file.seek(8)
            header: dict[str, Any] = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise _make_error(path, str(error)) from None
    header.pop("__metadata__", None)
    return {name: _parse_entry(path, name, entry, 8 + size) for name, entry in header.items()}


def is_finite(tensor: Tensor) -> bool:
    """Return True if all numbers are finite. `isfinite` would take as much memory as the tensor."""
    return not tensor.numel() or bool(torch.stack(torch.aminmax(tensor)).isfinite().all())


def _check_header_size(path: Path) -> int:
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > _MAX_HEADER_BYTES:  # a million empty tensors would take a gigabyte
        raise ModelError("safetensors_header_too_large", path=path, size=header, limit=_MAX_HEADER_BYTES)
    return header


def _parse_entry(path: Path, name: str, entry: Mapping[str, Any], data: int) -> StoredTensor:
    if (dtype := _DTYPES.get(entry["dtype"])) is None:
        raise _make_error(path, f"{cut_text(name)} has the type {cut_text(str(entry['dtype']))}")
    return StoredTensor(path, dtype, tuple(entry["shape"]), data + entry["data_offsets"][0])


def _fill(file: Any, view: memoryview) -> bool:
    """Fill the buffer from a file, which may return fewer bytes per call. Return False at the end of the file."""
    filled = 0
    while filled < len(view):
        count = file.readinto(view[filled:])
        if not count:
            return False
        filled += count
    return True


def _make_error(path: Path, reason: str) -> ModelError:
    return ModelError("safetensors_unreadable", path=path, reason=cut_text(reason))
