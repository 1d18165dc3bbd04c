"""A staging folder: written next to the target, moved there atomically, and removed on failure."""

from pathlib import Path
from types import TracebackType

from attendo import atomic_files
from attendo.data import index
from attendo.data.filtering import TooManyBadLinesError
from attendo.data.preparation_parts import PartFolder
from attendo.errors import AttendoError, DataError, UsageError


class StagingFolder:
    """The temporary folder of prepared data. An earlier folder is replaced only after the new one is durable."""

    def __init__(self, folder: Path, resumable: bool = False) -> None:
        """With `resumable`, the parts remain if the call is interrupted, or fails for a reason outside the data."""
        self.folder, self._resumable = folder, resumable
        self.path = atomic_files.temporary_path(folder)
        # Next to the folder: if there are too many bad lines, the list is kept and the folder is not.
        self.bad_lines = folder.with_name(f"{folder.name}.bad-lines.tsv")
        self.parts = PartFolder(self.path.with_name(f"{self.path.name}.parts"), resumable)
        self.lines = 0  # of the whole text
        self.bytes_needed = 0  # estimate
        self._added = (0, 0)  # bytes and lines

    def add_size(self, size: int, lines: int) -> None:
        """Estimate the space that the result needs from the windows done so far."""
        self._added = self._added[0] + size, self._added[1] + lines
        self.bytes_needed = self._added[0] * self.lines // self._added[1]

    def __enter__(self) -> "StagingFolder":
        folder = self.folder
        if (
            folder.exists()
            and not (folder / index.INDEX_FILE).is_file()
            and (not folder.is_dir() or any(folder.iterdir()))
        ):
            raise UsageError("folder_not_prepared_data", folder=folder)
        try:
            atomic_files.remove(self.path)
            with atomic_files.explain_disk_full(folder, 0):
                self.path.mkdir(parents=True)
        except OSError as error:
            raise UsageError("folder_creation_failed", folder=folder, reason=error.strerror) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or not self._resumable or isinstance(error, OSError | DataError | UsageError):
            atomic_files.remove(self.parts.path)
        if error is None:
            return
        atomic_files.remove(self.path)
        if not isinstance(error, TooManyBadLinesError):
            self.bad_lines.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise AttendoError(
                "prepared_data_write_failed", folder=self.folder, reason=error.strerror, bytes=self.bytes_needed
            ) from None
