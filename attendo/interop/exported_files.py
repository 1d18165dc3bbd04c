"""Where an export goes: written beside its place, moved there when it is whole and proven, and gone if not."""

import json
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args

from attendo import atomic_files
from attendo.errors import ModelError, UsageError, shorten
from attendo.model_files import read_json
from attendo.model_folder import check_manifest
from attendo.text_model import TextModel

FORMAT, VERSION = "attendo.export", 1
SUFFIX = ".argosmodel"
Precision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LONGEST = 2048  # tokens of a sequence, where a network sets no bound itself


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
        atomic_files.sync(place / goal.name)
        _check_file(goal)
        atomic_files.move(place / goal.name, goal)
        atomic_files.sync(goal.parent)


@contextmanager
def _beside(goal: Path) -> Iterator[Path]:
    place = goal.with_name(f"{atomic_files.TEMPORARY}{goal.name}")
    with atomic_files.explained(goal, 0), atomic_files.alone(goal):
        atomic_files.remove(place)
        try:
            place.mkdir()
            yield place
        finally:
            atomic_files.remove(place)


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
        atomic_files.sync(path)
    atomic_files.sync(place)


def _replace(place: Path, goal: Path) -> None:
    old = goal.with_name(f".old-{goal.name}")  # where `check_manifest` looks for it
    if goal.exists():
        atomic_files.remove(old)
        atomic_files.move(goal, old)
    try:
        atomic_files.move(place, goal)
    except BaseException:  # a signal too
        if old.exists() and not goal.exists():
            atomic_files.move(old, goal)
        raise
    atomic_files.sync(goal.parent)
    atomic_files.remove(old)


def longest_of(model: TextModel) -> int:
    config = model.network.config
    return min(LONGEST, config.max_length) if config.positions == "learned" else LONGEST


def checked_export(folder: Path, engine: str, precisions: Collection[str]) -> tuple[Collection[str], dict[str, Any]]:
    """Names of the files of an exported folder, all unchanged since it was written, and what its manifest tells."""
    manifest = check_manifest(folder, FORMAT, VERSION)
    facts = manifest.get("facts")
    if not isinstance(facts, dict) or facts.get("to") != engine:
        found = shorten(facts.get("to") if isinstance(facts, dict) else None)
        raise ModelError("export_format_mismatch", folder=folder, found=found, engine=engine)
    if facts.get("precision") not in precisions:
        raise ModelError(
            "export_precision_unknown",
            path=folder / "manifest.json",
            value=shorten(facts.get("precision")),
            precisions=", ".join(precisions),
        )
    return manifest["files"], facts


def save_tokenizers(model: TextModel, folder: Path) -> None:
    if model.source_tokenizer is model.target_tokenizer:
        model.source_tokenizer.save(folder, "joint")
    else:
        model.source_tokenizer.save(folder, "source")
        model.target_tokenizer.save(folder, "target")


def write_json(path: Path, content: dict[str, Any] | Sequence[Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
