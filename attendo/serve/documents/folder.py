"""A folder that is private to a process: made when needed, gone when the process ends, or swept by the next."""

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from attendo.errors import UsageError

_PREFIX = "attendo-documents-"
_LOCK = "lock"  # held as long as the process lives


class PrivateFolder:
    """Below `parent`, or where the system keeps temporary files. Only the user that runs this can look inside."""

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._folder: Path | None = None
        self._making = threading.Lock()
        _sweep(self._parent)

    def write(self, name: str, content: bytes) -> None:
        """Whole or not at all: an `OSError`, as of a full disk, leaves nothing behind."""
        folder = self._made()
        new = folder / f"{name}.new"
        try:
            new.write_bytes(content)
            new.replace(folder / name)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes:
        return (self._made() / name).read_bytes()

    def remove(self, name: str) -> None:
        """Also where it is not there."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _made(self) -> Path:
        with self._making:
            if self._folder is None:
                self._folder, lock = _new(self._parent)
                weakref.finalize(self, _remove, self._folder, lock)
            return self._folder


def check_usable(parent: Path) -> None:
    """Raises `UsageError` where nothing could be kept below it. What is made to find out is gone again."""
    missing = [each for each in (parent, *parent.parents) if not each.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise UsageError("documents_folder_unusable", path=parent, reason=error.strerror) from None
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def _new(parent: Path) -> tuple[Path, int]:
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Only now by a name that is swept: before, nobody could have told that somebody lives here.
    return folder.rename(folder.with_name(folder.name[1:])), lock


def _sweep(parent: Path) -> None:
    """Folders whose process was killed: nobody holds their lock any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            facts = folder.lstat()
            if facts.st_uid != os.getuid() or folder.is_symlink():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
