"""Writing that survives a crash: a folder is written beside its place, made durable, and moved there in one step.

Every change to the disk goes through the four verbs at the end, so that a test can stop the process at each of them.
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
except ImportError:  # Windows has none: there two processes are not kept apart
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".tmp-"
LOCK = ".lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFullError(AttendoError):
    """There is no room for a file; what was there before is untouched."""


@contextmanager
def new_folder(folder: Path, needed: int = 0) -> Iterator[Path]:
    """A place to write into; it becomes `folder`, which must not exist yet, when all went well, and vanishes if not."""
    check_room(folder.parent, needed)
    place = folder.with_name(f"{TEMPORARY}{folder.name}")
    remove(place)
    try:
        with explained(folder, needed):
            place.mkdir(parents=True)
            yield place
            for path in place.iterdir():
                sync(path)
            sync(place)
            move(place, folder)
            sync(folder.parent)
    except BaseException:
        remove(place)
        raise


def check_room(folder: Path, needed: int) -> None:
    """A `DiskFullError` where fewer bytes are free than will be needed."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DiskFullError("disk_space_too_small", folder=folder, free=free, needed=needed)


@contextmanager
def explained(path: Path, needed: int) -> Iterator[None]:
    """A disk that fills up while writing is told by name."""
    try:
        yield
    except (OSError, AttendoError) as error:
        if not _means_full(error):
            raise
        size = f"about {needed:,} bytes are" if needed else "more room is"
        raise DiskFullError("disk_full", path=path, size=size) from None


def _means_full(error: Exception) -> bool:
    """By number, or by the system's words where a library passes on nothing else, as safetensors does."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return any(os.strerror(number) in str(error) for number in _FULL)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a folder meanwhile; the system lets go of it however this one ends."""
    with _held(folder / LOCK, UsageError("folder_in_use", folder=folder)):
        yield


@contextmanager
def alone(goal: Path) -> Iterator[None]:
    """Keeps others from writing `goal` meanwhile. Folders that are made to hold it go again if it did not come."""
    made = [folder for folder in goal.parents if not folder.exists()]
    if (file := next((each for each in goal.parents if each.is_file()), None)) is not None:
        raise UsageError("parent_is_a_file", path=goal, file=file)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        busy = UsageError("path_being_written", path=goal)
        with _held(goal.with_name(f"{TEMPORARY}{goal.name}{LOCK}"), busy):
            yield
    finally:
        with suppress(OSError):  # something stands in them
            for folder in made:
                folder.rmdir()


@contextmanager
def _held(path: Path, busy: UsageError) -> Iterator[None]:
    """A file that one can hold at a time, and that is gone afterwards."""
    with explained(path, 0):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise busy from None
    if not _is_at(path, handle):  # who held it has just removed it
        os.close(handle)
        with _held(path, busy):
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


def sweep(folder: Path) -> list[Path]:
    """Remove what an interrupted write left behind, and name it."""
    left = sorted(folder.glob(f"{TEMPORARY}*")) if folder.is_dir() else []
    for path in left:
        remove(path)
    return left


def replace(path: Path, content: bytes) -> None:
    """One file, whole or as it was before."""
    place = path.with_name(f"{TEMPORARY}{path.name}")
    write(place, content)
    sync(place)
    move(place, path)
    sync(path.parent)


def write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def move(path: Path, place: Path) -> None:
    path.rename(place)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
