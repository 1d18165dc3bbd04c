"""Where an export goes: written beside its place, moved there when it is whole and proven, and gone if not."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attendo import durable
from attendo.errors import ModelError, UsageError
from attendo.model_files import read_json

FORMAT, VERSION = "attendo.export", 1
SUFFIX = ".argosmodel"


@contextmanager
def new_export(goal: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `goal`, replacing an earlier export there, when all went well."""
    goal = goal.resolve()
    _check_folder(goal)
    with _beside(goal) as place:
        yield place
        _settle(place)
        _check_folder(goal)  # again: writing took its time
        _replace(place, goal)


@contextmanager
def new_package(goal: Path) -> Iterator[Path]:
    """A folder to write into, of which the file named as `goal` takes its place, replacing an earlier package."""
    goal = goal.resolve()
    _check_file(goal)
    with _beside(goal) as place:
        yield place
        durable.sync(place / goal.name)
        _check_file(goal)
        durable.move(place / goal.name, goal)
        durable.sync(goal.parent)


@contextmanager
def _beside(goal: Path) -> Iterator[Path]:
    place = goal.with_name(f"{durable.TEMPORARY}{goal.name}")
    with durable.explained(goal, 0), durable.alone(goal):
        durable.remove(place)
        try:
            place.mkdir()
            yield place
        finally:
            durable.remove(place)


def _check_folder(goal: Path) -> None:
    """Nothing but an earlier export is ever replaced, least of all a model or a checkpoint."""
    if not goal.exists() or (goal.is_dir() and not any(goal.iterdir())):
        return
    try:
        kind = read_json(goal / "manifest.json").get("format")
    except ModelError:
        kind = None
    if kind != FORMAT:
        raise UsageError("output_not_exported_model", path=goal)


def _check_file(goal: Path) -> None:
    """The same for a package: one of ours brings its certificate."""
    if not goal.exists():
        return
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError, OSError), zipfile.ZipFile(goal) as package:
        if any(Path(name).name == "certificate.json" for name in package.namelist()):
            return
    raise UsageError("output_not_exported_package", path=goal)


def _settle(place: Path) -> None:
    for path in place.rglob("*"):
        durable.sync(path)
    durable.sync(place)


def _replace(place: Path, goal: Path) -> None:
    old = goal.with_name(f".old-{goal.name}")  # where `check_manifest` looks for it
    if goal.exists():
        durable.remove(old)
        durable.move(goal, old)
    try:
        durable.move(place, goal)
    except BaseException:  # a signal too
        if old.exists() and not goal.exists():
            durable.move(old, goal)
        raise
    durable.sync(goal.parent)
    durable.remove(old)
