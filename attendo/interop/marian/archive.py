"""Files of a Marian model by base name, from a folder or from a zip file as OPUS-MT publishes it.

No path of a zip file is used, so a member cannot be written or read elsewhere. Sizes are checked before reading. A
member that is much larger than its compressed bytes is refused, because a model never shrinks that much.
"""

import gzip
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from attendo.errors import AttendoError, MessagePart, ModelError, cut_line, cut_text, list_names
from attendo.interop.errors import MAX_ERROR_CHARS
from attendo.model_files import COPY_AGAIN

MAX_SETTINGS_BYTES = 1024**2  # of decoder.yml and of special:model.yml; they have about 5 kB
MAX_VOCABULARY_BYTES = 64 * 1024**2  # of a vocabulary or a SentencePiece model; the largest have about 5 MB
_MAX_DIRECTORY_BYTES = 4 * 1024**2  # list of a zip file's members: about 50,000 names
_SPOOLED_BYTES = 8 * 1024**2  # of an unpacked member in memory; a larger one is a temporary file
_MAX_EXPANSION, _SMALL_BYTES = 100, 1024**2  # size by compressed size of a member, unless the member is small
# The records at the end of a zip file that have the size of this list: first bytes, position of the size, its form.
_DIRECTORY_SIZES = ((b"PK\x05\x06", 12, "<I"), (b"PK\x06\x06", 40, "<Q"))
_TAIL_BYTES = 2**16 + 128  # both records, and the longest comment
GZIP_SUFFIX = ".gz"
_ZIP_MAGIC = b"PK\x03\x04"
_DRIVE_OR_FOLDER = re.compile(r"^.*[/\\]")
# Exceptions of zipfile and zlib for damaged members. RuntimeError: a member needs a password.
READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)


def base_name(path: str) -> str:
    """Return the last part of a path of any system."""
    return _DRIVE_OR_FOLDER.sub("", path)


def is_zip_file(path: Path) -> bool:
    """Return whether a file is a zip file by its name or by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix.lower() == ".zip" or file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


@dataclass(frozen=True)
class ModelFiles:
    """The files of a folder or a zip file. `entries` are paths in the folder or members of the zip, by base name."""

    path: Path
    entries: Mapping[str, Path | zipfile.ZipInfo]

    @property
    def names(self) -> list[str]:
        return sorted(self.entries)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that can be read and searched, uncompressed. A fault of the file raises a `ModelError`.

        A large member of a zip file is unpacked to an unnamed temporary file: the weights are a zip file too, and each
        step back in a compressed file would unpack it again.
        """
        entry = self._entry(name)
        try:
            with ExitStack() as stack:
                file: IO[bytes]
                if isinstance(entry, Path):
                    file = stack.enter_context(entry.open("rb"))
                else:
                    file = stack.enter_context(tempfile.SpooledTemporaryFile(_SPOOLED_BYTES))
                    with zipfile.ZipFile(self.path) as archive, archive.open(entry) as member:
                        shutil.copyfileobj(member, file, _SMALL_BYTES)
                    file.seek(0)
                if name.endswith(GZIP_SUFFIX):
                    file = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=file)))
                yield file
        except AttendoError:
            raise
        except READ_ERRORS as error:
            raise self._make_damaged_error(name, error) from None

    def packed_size(self, name: str) -> int:
        """Return the number of bytes on disk."""
        entry = self._entry(name)
        return entry.stat().st_size if isinstance(entry, Path) else entry.compress_size

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file of at most `limit` bytes."""
        entry = self._entry(name)
        size = entry.stat().st_size if isinstance(entry, Path) else entry.file_size
        if size > limit:
            path = self.describe(name)
            raise ModelError("model_file_too_large", path=path, size=size, limit=limit, fix=COPY_AGAIN)
        with self.open(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:  # a compressed file
            path = self.describe(name)
            raise ModelError("model_file_too_large", path=path, size=len(content), limit=limit, fix=COPY_AGAIN)
        return content

    def describe(self, name: str) -> str:
        """Return the path of a file for a message."""
        return str(self.path / name)

    def copy(self, name: str, target: Path) -> None:
        """Write a file to `target`, as a link if possible."""
        entry = self._entry(name)
        if isinstance(entry, Path) and not name.endswith(GZIP_SUFFIX):
            target.symlink_to(entry.resolve())
            return
        with self.open(name) as file, target.open("wb") as copied:
            shutil.copyfileobj(file, copied, _SMALL_BYTES)

    def _entry(self, name: str) -> Path | zipfile.ZipInfo:
        if name not in self.entries:
            files = list_names(self.names) or "nothing"
            raise ModelError("marian_file_missing", path=self.path, file=cut_text(name), files=files)
        entry = self.entries[name]
        if isinstance(entry, Path):
            if not entry.is_file():  # reading a pipe might never end
                raise ModelError("not_a_regular_file", path=entry, fix=COPY_AGAIN)
        elif fault := find_member_fault(entry):
            raise ModelError("zip_member_refused", path=self.path, member=cut_text(name), reason=fault)
        return entry

    def _make_damaged_error(self, name: str, error: Exception) -> ModelError:
        reason = cut_line(str(error), MAX_ERROR_CHARS) or type(error).__name__
        return ModelError("model_file_unreadable", path=self.describe(name), reason=reason, fix=COPY_AGAIN)


def open_folder(path: Path) -> ModelFiles:
    return ModelFiles(path, {each.name: each for each in path.iterdir() if not each.is_dir()})


def open_zip(path: Path) -> ModelFiles:
    """Read the list of members. Two files with the same base name are refused."""
    try:
        with path.open("rb") as file:
            check_directory_size(file, path)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
    except READ_ERRORS as error:
        raise ModelError("zip_file_invalid", path=path, reason=cut_line(str(error), MAX_ERROR_CHARS)) from None
    entries: dict[str, Path | zipfile.ZipInfo] = {}
    for member in members:
        if member.is_dir():
            continue
        name = base_name(PurePosixPath(member.filename).name)
        if name in entries:
            raise ModelError("zip_member_twice", path=path, member=cut_text(name))
        entries[name] = member
    return ModelFiles(path, entries)


def check_directory_size(file: IO[bytes], path: str | Path) -> None:
    """Raise a `ModelError` if the list of members is so long that reading it would take much memory."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    file.seek(0)
    sizes = [size for mark, offset, form in _DIRECTORY_SIZES for size in _read_sizes(tail, mark, offset, form)]
    if not sizes:
        raise zipfile.BadZipFile("File is not a zip file")
    if max(sizes) > _MAX_DIRECTORY_BYTES:
        raise ModelError("zip_directory_too_large", path=path, size=max(sizes), limit=_MAX_DIRECTORY_BYTES)


def _read_sizes(tail: bytes, mark: bytes, offset: int, form: str) -> Iterator[int]:
    """Yield the size of the list of members in every record that could be its end."""
    position = tail.find(mark)
    while position >= 0:
        if position + offset + struct.calcsize(form) <= len(tail):
            (size,) = struct.unpack_from(form, tail, position + offset)
            yield size
        position = tail.find(mark, position + 1)


def find_member_fault(member: zipfile.ZipInfo) -> MessagePart | None:
    """Return why a member is not read."""
    if member.flag_bits & 1:
        return MessagePart("zip_member_encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return MessagePart("zip_member_method", method=member.compress_type)
    if member.file_size > max(_SMALL_BYTES, _MAX_EXPANSION * member.compress_size):
        return MessagePart("zip_member_expands", size=member.file_size, packed=member.compress_size)
    return None
