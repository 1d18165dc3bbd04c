"""Crash-safe writes: write to a temporary path, fsync, then rename.

Every change to the disk goes through the functions at the end (`write`, `append`, `truncate_to_lines`, `sync`, `move`,
`remove`). A test can stop the process at most of them.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attendo.errors import AttendoError, UsageError

try:
    import fcntl
except ImportError:  # Windows has no fcntl: there the lock does not exclude other processes
    fcntl = None  # type: ignore[assignment]

TEMPORARY_PREFIX = ".tmp-"
BACKUP_PREFIX = ".old-"
LOCK_SUFFIX = ".lock"
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFullError(AttendoError):
    """The disk has no space for a file. Existing files are unchanged."""


@contextmanager
def new_folder(folder: Path, bytes_needed: int = 0) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `folder` on success and removed on an error.

    `folder` must not exist yet.
    """
    check_free_space(folder.parent, bytes_needed)
    with temporary_folder(folder, bytes_needed) as new:
        yield new
        move_into_place(new, folder)


@contextmanager
def temporary_folder(path: Path, bytes_needed: int = 0) -> Iterator[Path]:
    """Yield an empty folder next to `path`. Files that are not moved elsewhere are removed at the end."""
    new = temporary_path(path)
    remove(new)
    try:
        with explain_disk_full(path, bytes_needed):
            new.mkdir(parents=True)
            yield new
    finally:
        remove(new)


def replace_folder(folder: Path, new: Path) -> None:
    """Move the finished folder `new` to `folder`. An earlier folder is kept until the new one is durable.

    After a kill between the two renames, `restore_folder` moves the earlier folder back.
    """
    _sync_tree(new)
    old = _backup_path(folder)
    try:
        if folder.exists():
            remove(old)
            move(folder, old)
        move(new, folder)
        sync(folder.parent)
    except BaseException:  # also on a signal
        restore_folder(folder)
        raise
    remove(old)


def restore_folder(folder: Path) -> None:
    """Move the backup of a folder back if an interrupted `replace_folder` left only that."""
    if not folder.exists() and _backup_path(folder).is_dir():
        move(_backup_path(folder), folder)


def remove_backup(folder: Path) -> None:
    """Remove the backup that a killed `replace_folder` left, if the new folder is in place."""
    if folder.exists():
        remove(_backup_path(folder))


def temporary_path(path: Path) -> Path:
    """Return the path where new content is written before it is renamed to `path`."""
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}")


def _backup_path(folder: Path) -> Path:
    return folder.with_name(f"{BACKUP_PREFIX}{folder.name}")


def check_free_space(folder: Path, bytes_needed: int) -> None:
    """Raise a `DiskFullError` if fewer than `bytes_needed` bytes are free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if bytes_needed > free:
        raise DiskFullError("disk_space_too_small", folder=folder, free=free, needed=bytes_needed)


@contextmanager
def explain_disk_full(path: Path, bytes_needed: int) -> Iterator[None]:
    """Turn a disk-full error during a write into a `DiskFullError` that names the path."""
    try:
        yield
    except (OSError, AttendoError) as error:
        if not _is_disk_full(error):
            raise
        if bytes_needed:
            raise DiskFullError("disk_full", path=path, size=bytes_needed) from None
        raise DiskFullError("disk_full_size_unknown", path=path) from None


def _is_disk_full(error: Exception) -> bool:
    """Check the errno, or the system's message if a library only passes that on, as safetensors does."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _DISK_FULL_ERRNOS
    return any(os.strerror(number) in str(error) for number in _DISK_FULL_ERRNOS)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes. The system releases the lock if this process dies."""
    with _file_lock(folder / LOCK_SUFFIX, UsageError("folder_in_use", folder=folder)):
        yield


@contextmanager
def exclusive_target(target: Path) -> Iterator[None]:
    """Lock `target` against other writers.

    Parent folders that were created for it are removed if they are still empty at the end.
    """
    made = [folder for folder in target.parents if not folder.exists()]
    if (file := next((each for each in target.parents if each.is_file()), None)) is not None:
        raise UsageError("parent_is_a_file", path=target, file=file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        busy = UsageError("path_being_written", path=target)
        with _file_lock(target.with_name(f"{TEMPORARY_PREFIX}{target.name}{LOCK_SUFFIX}"), busy):
            yield
    finally:
        with suppress(OSError):  # not empty
            for folder in made:
                folder.rmdir()


@contextmanager
def _file_lock(path: Path, error: UsageError) -> Iterator[None]:
    """Hold an exclusive lock on a file, and remove the file afterwards."""
    with explain_disk_full(path, 0):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise error from None
    if not _is_at(path, handle):  # the previous holder has just removed it
        os.close(handle)
        with _file_lock(path, error):
            yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the temporary files of an interrupted write, and return their paths."""
    left = sorted(folder.glob(f"{TEMPORARY_PREFIX}*")) if folder.is_dir() else []
    for path in left:
        remove(path)
    return left


def replace_file(path: Path, content: bytes) -> None:
    """Replace one file atomically. On an error, `path` is unchanged."""
    new = temporary_path(path)
    try:
        write(new, content)
        move_into_place(new, path)
    except BaseException:
        with suppress(OSError):
            remove(new)
        raise


def move_into_place(new: Path, path: Path) -> None:
    """Rename a finished file or folder to `path` durably."""
    _sync_tree(new)
    move(new, path)
    sync(path.parent)


def _sync_tree(path: Path) -> None:
    """Sync a file, or a folder and everything in it."""
    for each in path.rglob("*"):
        sync(each)
    sync(path)


def write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)


def append(path: Path, content: bytes) -> None:
    """Append to a file durably. After a crash, only the end of the content may be missing."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def truncate_to_lines(path: Path) -> int:
    """Remove an incomplete last line, as a crash during `append` leaves it. Return the number of complete ones."""
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        lines, end = 0, 0
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
        file.truncate(end)
    return lines


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def move(path: Path, destination: Path) -> None:
    path.rename(destination)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
