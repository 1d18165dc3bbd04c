"""Marian's own weight file, as the models inside Firefox have it. It may hold 8-bit or 16-bit integers.

    version, number of tensors; of each tensor: bytes of its name, type, dimensions and bytes of its values
    names; shapes; padding; values                                                    integers are little endian

The integers of intgemm are q = round(weight · multiplier), as [out, in], followed by the multiplier. Tables of tokens
are not transposed. attendo computes with q / multiplier. It does not round activations, as Marian does with such files.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from attendo.errors import MessagePart, ModelError, cut_text
from attendo.interop.marian.archive import MAX_SETTINGS_BYTES, ModelFiles
from attendo.interop.marian.weight_file import CHUNK_BYTES, WeightFile, read_exactly

_VERSION, _ENCRYPTED_VERSION = 1, 2
_MAX_TENSORS, _MAX_NAME_BYTES, _MAX_DIMENSIONS = 100_000, 1024, 8
_MAX_PADDING = 1024  # bytes after names or values
_MAX_VALUES = 2**40
_BYTES = 0x101
_FLOATS: dict[int, np.dtype[Any]] = {0x404: np.dtype("<f4"), 0x402: np.dtype("<f2")}
_INTEGERS: dict[int, np.dtype[Any]] = {
    0x10001: np.dtype("<i1"),
    0x10002: np.dtype("<i2"),
}  # of intgemm, for any processor
_TYPE_NAMES = {_BYTES: "int8", 0x404: "float32", 0x402: "float16", 0x10001: "intgemm8", 0x10002: "intgemm16"}
# Types of matrices in an order for one kind of processor.
_PACKED = {0x11001: "SSSE3", 0x12001: "AVX2", 0x14001: "AVX512", 0x12002: "AVX2", 0x14002: "AVX512"}
_MULTIPLIER = np.dtype("<f4")
_TABLE = "Wemb"
_ACTIVATION_SUFFIX = "_QuantMultA"  # factors for rounding activations, which attendo does not do


@dataclass(frozen=True)
class BinHeader:
    """The type and shape of a tensor, and where its values are."""

    name: str
    type_number: int
    shape: tuple[int, ...]
    size: int  # bytes of the values, with padding
    position: int = 0  # of the first value in the file

    @property
    def is_float(self) -> bool:
        return self.type_number in _FLOATS or self.type_number in _INTEGERS

    @property
    def is_integer(self) -> bool:
        return self.type_number in _INTEGERS

    @property
    def type_name(self) -> str:
        if self.type_number in _PACKED:
            return f"packed for {_PACKED[self.type_number]}"
        return _TYPE_NAMES.get(self.type_number, f"{self.type_number:#x}")

    @property
    def value_bytes(self) -> int:
        """Bytes of the values without padding; 0 for unknown types."""
        kind = _FLOATS.get(self.type_number) or _INTEGERS.get(self.type_number)
        if kind is None:
            return math.prod(self.shape) if self.type_number == _BYTES else 0
        return math.prod(self.shape) * kind.itemsize + (_MULTIPLIER.itemsize if self.is_integer else 0)


class BinFile(WeightFile):
    """An open weight file. Tensors are read in the order of the file, which may be compressed."""

    def __init__(self, file: IO[bytes], path: str, headers: Mapping[str, BinHeader]) -> None:
        super().__init__(path, headers)
        self._file, self._headers = file, headers

    @property
    def is_quantized(self) -> bool:
        return any(each.is_integer for each in self._headers.values())

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for name, shape in super().shapes().items() if not name.endswith(_ACTIVATION_SUFFIX)}

    def read_bytes(self, name: str) -> bytes:
        header = self._headers[name]
        if header.type_number != _BYTES or header.size > MAX_SETTINGS_BYTES:
            raise self.make_error(name, MessagePart("tensor_not_settings"))
        self._file.seek(header.position)
        return read_exactly(self._file, header.value_bytes)

    def iter_rows(self, name: str) -> Iterator[tuple[int, Tensor]]:
        header = self._headers[name]
        self._file.seek(header.position)
        if header.is_integer:
            yield from self._iter_integer_rows(header)
            return
        rows, width, kind = header.shape[0], math.prod(header.shape[1:]), _FLOATS[header.type_number]
        step = max(1, CHUNK_BYTES // max(1, 4 * width))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            content = read_exactly(self._file, count * width * kind.itemsize)
            values = np.frombuffer(content, kind).astype(np.float32)
            yield start, torch.from_numpy(values.reshape(count, *header.shape[1:]))

    def _iter_integer_rows(self, header: BinHeader) -> Iterator[tuple[int, Tensor]]:
        """The multiplier follows all integers, so they are read at once: a quarter or a half of the float32 numbers."""
        kind = _INTEGERS[header.type_number]
        content = read_exactly(self._file, header.value_bytes)
        count = math.prod(header.shape)
        integers = np.frombuffer(content, kind, count)
        multiplier = float(np.frombuffer(content, _MULTIPLIER, 1, count * kind.itemsize)[0])
        if not (math.isfinite(multiplier) and multiplier > 0):
            raise self.make_error(header.name, MessagePart("bin_multiplier_invalid", value=multiplier))
        shape = header.shape if _TABLE in header.name else header.shape[::-1]
        matrix = integers.reshape(shape)
        matrix = matrix if _TABLE in header.name else matrix.T
        step = max(1, CHUNK_BYTES // max(1, 4 * header.shape[1]))
        for start in range(0, header.shape[0], step):
            rows = matrix[start : start + step].astype(np.float32) / np.float32(multiplier)
            yield start, torch.from_numpy(np.ascontiguousarray(rows))


@contextmanager
def open_bin(files: ModelFiles, name: str) -> Iterator[BinFile]:
    """Open a weight file and check the headers of all its tensors."""
    path = files.describe(name)
    with files.open(name) as file:
        yield BinFile(file, path, _read_headers(file, path))


def _read_headers(file: IO[bytes], path: str) -> dict[str, BinHeader]:
    version, count = struct.unpack("<QQ", read_exactly(file, 16))
    if version != _VERSION:
        reason = MessagePart("bin_encrypted") if version == _ENCRYPTED_VERSION else MessagePart("bin_not_marian")
        raise ModelError("bin_file_invalid", path=path, reason=reason)
    if not 0 < count <= _MAX_TENSORS:
        raise ModelError("bin_file_invalid", path=path, reason=MessagePart("bin_tensor_count", count=count))
    fields = [struct.unpack("<QQQQ", read_exactly(file, 32)) for _ in range(count)]
    if any(name > _MAX_NAME_BYTES or dimensions > _MAX_DIMENSIONS for name, _, dimensions, _ in fields):
        raise ModelError("bin_file_invalid", path=path, reason=MessagePart("bin_not_marian"))
    names = [read_exactly(file, each[0]).rstrip(b"\0").decode("utf-8", "replace") for each in fields]
    shapes = [struct.unpack(f"<{each[2]}i", read_exactly(file, 4 * each[2])) for each in fields]
    (padding,) = struct.unpack("<Q", read_exactly(file, 8))
    if padding > _MAX_PADDING:
        raise ModelError("bin_file_invalid", path=path, reason=MessagePart("bin_not_marian"))
    position = file.tell() + padding
    headers: dict[str, BinHeader] = {}
    for name, shape, (_, type_number, _, size) in zip(names, shapes, fields, strict=True):
        header = BinHeader(name, type_number, shape, size, position)
        fault = MessagePart("tensor_repeated") if name in headers else _find_fault(header)
        if fault is not None:
            raise ModelError("weight_tensor_invalid", path=path, tensor=cut_text(name), reason=fault)
        headers[name] = header
        position += size
    return headers


def _find_fault(header: BinHeader) -> MessagePart | None:
    if header.type_number != _BYTES and not header.is_float:
        return MessagePart("bin_type_unsupported", type=header.type_name)
    if min(header.shape, default=0) < 0 or math.prod(header.shape) > _MAX_VALUES:
        return MessagePart("bin_shape_invalid", shape=list(header.shape))
    if header.is_integer and len(header.shape) != 2:
        return MessagePart("bin_shape_invalid", shape=list(header.shape))
    if not header.value_bytes <= header.size <= header.value_bytes + _MAX_PADDING:
        return MessagePart("tensor_size_differs", shape=list(header.shape), size=header.size)
    return None
