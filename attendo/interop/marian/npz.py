"""An npz file of weights, read tensor by tensor.

An npz file is a zip file of npy files. Headers are parsed here, by one pattern, so nothing in the file can run code.
The size of every tensor is known and checked before its first value is read.
"""

import math
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attendo.errors import MessagePart, ModelError, cut_text
from attendo.interop.marian.archive import MAX_SETTINGS_BYTES, ModelFiles, check_directory_size, find_member_fault
from attendo.interop.marian.weight_file import CHUNK_BYTES, WeightFile, read_exactly

_SUFFIX = ".npy"
_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 4096
_HEADER = re.compile(
    r"\{'descr': '(?P<type>[<>|=]?[a-z]\d+)', 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[\d, ]*)\),? ?\}\s*"
)
_FLOATS: dict[str, np.dtype[Any]] = {"<f4": np.dtype("<f4"), "<f2": np.dtype("<f2")}
_BYTES = ("<i1", "|i1", "<u1", "|u1")
_MAX_EXPANSION, _SMALL_BYTES = 20, 1024**2  # bytes of all tensors by bytes on disk, unless they are few


@dataclass(frozen=True)
class NpyHeader:
    """The type and shape of a tensor, and where its values begin."""

    member: zipfile.ZipInfo
    type_name: str
    shape: tuple[int, ...]
    offset: int  # bytes before the first value

    @property
    def is_float(self) -> bool:
        return self.type_name in _FLOATS

    @property
    def position(self) -> int:
        return self.member.header_offset

    @property
    def item_bytes(self) -> int:
        return int(self.type_name[2:])


class NpzFile(WeightFile):
    """An open npz file."""

    def __init__(self, archive: zipfile.ZipFile, path: str, headers: Mapping[str, NpyHeader]) -> None:
        super().__init__(path, headers)
        self._archive, self._headers = archive, headers

    def read_bytes(self, name: str) -> bytes:
        header = self._headers[name]
        if header.type_name not in _BYTES or header.member.file_size > MAX_SETTINGS_BYTES:
            raise self.make_error(name, MessagePart("tensor_not_settings"))
        with self._archive.open(header.member) as file:
            return file.read()[header.offset :]

    def iter_rows(self, name: str) -> Iterator[tuple[int, Tensor]]:
        header = self._headers[name]
        rows, width = header.shape[0], math.prod(header.shape[1:])
        step = max(1, CHUNK_BYTES // max(1, 4 * width))
        kind = _FLOATS[header.type_name]
        with self._archive.open(header.member) as file:
            read_exactly(file, header.offset)
            for start in range(0, rows, step):
                count = min(step, rows - start)
                content = read_exactly(file, count * width * kind.itemsize)
                values = np.frombuffer(content, kind).astype(np.float32, copy=False)
                yield start, torch.from_numpy(values.reshape(count, *header.shape[1:]).copy())


@contextmanager
def open_npz(files: ModelFiles, name: str) -> Iterator[NpzFile]:
    """Open an npz file and check the headers of all its tensors."""
    path = files.describe(name)
    packed = files.packed_size(name)
    with files.open(name) as file:
        check_directory_size(file, path)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            size = sum(each.file_size for each in members)
            if size > max(_SMALL_BYTES, _MAX_EXPANSION * packed):
                raise ModelError("npz_expands", path=path, size=size, packed=packed)
            yield NpzFile(archive, path, _read_headers(archive, members, path))


def _read_headers(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], path: str) -> dict[str, NpyHeader]:
    """Read all headers in the order of the file, which is the fast order in a compressed file."""
    headers: dict[str, NpyHeader] = {}
    for member in sorted(members, key=lambda each: each.header_offset):
        name = member.filename.removesuffix(_SUFFIX)
        fault = find_member_fault(member)
        if name in headers:
            fault = MessagePart("tensor_repeated")
        if fault is None:
            header = _read_header(archive, member)
            fault = header if isinstance(header, MessagePart) else _find_header_fault(header)
        if fault is not None:
            raise ModelError("weight_tensor_invalid", path=path, tensor=cut_text(name), reason=fault)
        assert isinstance(header, NpyHeader)
        headers[name] = header
    return headers


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NpyHeader | MessagePart:
    """Return the header, or why it is not one."""
    with archive.open(member) as file:
        start = file.read(8)
        if start[:6] != _MAGIC or len(start) < 8:
            return MessagePart("npy_not_array")
        form = "<H" if start[6] == 1 else "<I"
        (length,) = struct.unpack(form, read_exactly(file, struct.calcsize(form)))
        if length > _MAX_HEADER_BYTES:
            return MessagePart("npy_not_array")
        found = _HEADER.fullmatch(read_exactly(file, length).decode("latin-1"))
    if found is None or found["fortran"] == "True":
        return MessagePart("npy_not_array")
    shape = tuple(int(each) for each in found["shape"].replace(",", " ").split())
    return NpyHeader(member, found["type"], shape, 8 + struct.calcsize(form) + length)


def _find_header_fault(header: NpyHeader) -> MessagePart | None:
    if not header.is_float and header.type_name not in _BYTES:
        return MessagePart("npy_type_unsupported", type=header.type_name)
    if header.offset + math.prod(header.shape) * header.item_bytes != header.member.file_size:
        return MessagePart("tensor_size_differs", shape=list(header.shape), size=header.member.file_size)
    return None
