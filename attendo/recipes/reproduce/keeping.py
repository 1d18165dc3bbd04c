"""Small files about runs, written whole or not at all; one that cannot be written is told by name."""

from contextlib import suppress
from pathlib import Path

from attendo import durable
from attendo.errors import UsageError


def keep(path: Path, text: str) -> None:
    """In place of what may be there; the error has the path, and the bytes where the disk is full."""
    content = text.encode("utf-8", "backslashreplace")
    try:
        with durable.explained(path, len(content)):
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.replace(path, content)
    except OSError as error:
        raise UsageError("reproduce_file_not_writable", path=path, reason=error.strerror) from None
    finally:
        with suppress(OSError):
            durable.remove(path.with_name(f"{durable.TEMPORARY}{path.name}"))
