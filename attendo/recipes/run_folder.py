"""The folder of a run: who may have it, and what stands in it before there is data."""

from pathlib import Path

from attendo import durable
from attendo.errors import UsageError

_WORTH_KEEPING = ("data", "checkpoints", "model")
_OF_A_RUN = ("run.toml", *_WORTH_KEEPING, "validation", "metrics.jsonl", "skipped.jsonl")


def check_free(folder: Path, overwrite: bool = False) -> None:
    """A run that is there already is not given up unless that is said. One without data may be begun again.

    A place that cannot be a folder is refused too, before text is read.
    """
    begun = (folder / "run.toml").exists() and any((folder / name).exists() for name in _WORTH_KEEPING)
    if begun and not overwrite:
        raise UsageError("run_folder_in_use", folder=folder)
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if there.exists() and not there.is_dir():
        raise UsageError("run_folder_path_is_file", folder=folder, file=there)


def make_folder(folder: Path) -> None:
    try:
        with durable.explained(folder, 0):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("run_folder_not_creatable", folder=folder, reason=error.strerror) from None


def claim(folder: Path, settings: bytes, circumstances: bytes) -> None:
    """Make the folder ours: nothing of an earlier run may be taken for this one's."""
    try:
        with durable.explained(folder, len(settings) + len(circumstances)):
            for name in _OF_A_RUN:
                durable.remove(folder / name)
            durable.write(folder / "run.json", circumstances)
            durable.replace(folder / "run.toml", settings)
    except OSError as error:
        raise UsageError("run_folder_not_writable", folder=folder, reason=error.strerror) from None
