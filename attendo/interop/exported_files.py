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

MANIFEST_FORMAT, MANIFEST_VERSION = "attendo.export", 1
ARGOS_SUFFIX = ".argosmodel"
ExportPrecision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[ExportPrecision, ...] = get_args(ExportPrecision)
MAX_SEQUENCE_LENGTH = 2048  # tokens of a sequence, where a network sets no bound itself


@contextmanager
def new_export(goal: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `goal`, replacing an earlier export there, when all went well."""
    goal = goal.resolve()
    _check_folder(goal)
    with _staging_folder(goal) as place:
        yield place
        _sync_folder(place)
        _check_folder(goal)  # again: writing took its time
        _replace(place, goal)


@contextmanager
def new_package(goal: Path) -> Iterator[Path]:
    """A folder to write into, of which the file named as `goal` takes its place, replacing an earlier package."""
    goal = goal.resolve()
    _check_file(goal)
    with _staging_folder(goal) as place:
        yield place
        atomic_files.sync(place / goal.name)
        _check_file(goal)
        atomic_files.move(place / goal.name, goal)
        atomic_files.sync(goal.parent)


@contextmanager
def _staging_folder(goal: Path) -> Iterator[Path]:
    place = goal.with_name(f"{atomic_files.TEMPORARY_PREFIX}{goal.name}")
    with atomic_files.explain_disk_full(goal, 0), atomic_files.exclusive_target(goal):
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
    if kind != MANIFEST_FORMAT:
        raise UsageError("output_not_exported_model", path=goal)


def _check_file(goal: Path) -> None:
    """The same for a package: one of ours brings its certificate."""
    if not goal.exists():
        return
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError, OSError), zipfile.ZipFile(goal) as package:
        if any(Path(name).name == "certificate.json" for name in package.namelist()):
            return
    raise UsageError("output_not_exported_package", path=goal)


def _sync_folder(folder: Path) -> None:
    for path in folder.rglob("*"):
        atomic_files.sync(path)
    atomic_files.sync(folder)


def _replace(staged: Path, goal: Path) -> None:
    old = goal.with_name(f".old-{goal.name}")  # where `check_manifest` looks for it
    if goal.exists():
        atomic_files.remove(old)
        atomic_files.move(goal, old)
    try:
        atomic_files.move(staged, goal)
    except BaseException:  # a signal too
        if old.exists() and not goal.exists():
            atomic_files.move(old, goal)
        raise
    atomic_files.sync(goal.parent)
    atomic_files.remove(old)


def model_max_length(model: TextModel) -> int:
    config = model.network.config
    return min(MAX_SEQUENCE_LENGTH, config.max_length) if config.positions == "learned" else MAX_SEQUENCE_LENGTH


def check_export(folder: Path, engine: str, precisions: Collection[str]) -> tuple[Collection[str], dict[str, Any]]:
    """Names of the files of an exported folder, all unchanged since it was written, and what its manifest tells."""
    manifest = check_manifest(folder, MANIFEST_FORMAT, MANIFEST_VERSION)
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
