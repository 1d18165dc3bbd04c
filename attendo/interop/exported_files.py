"""Files of an export: written to a staging folder, and moved to the target only after the certificate passes."""

import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, get_args

from attendo import atomic_files
from attendo.errors import ModelError, UsageError, shorten
from attendo.interop.certificate import CERTIFICATE_FILE
from attendo.model_files import read_json, write_json
from attendo.model_folder import ABOUT, check_manifest
from attendo.text import save_tokenizers
from attendo.text_model import TextModel

MANIFEST_FORMAT, MANIFEST_VERSION = "attendo.export", 1
ARGOS_SUFFIX = ".argosmodel"
ExportPrecision = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[ExportPrecision, ...] = get_args(ExportPrecision)
MAX_SEQUENCE_LENGTH = 2048  # tokens of a sequence; learned positions may lower it


@contextmanager
def new_export(goal: Path, packed: bool = False) -> Iterator[Path]:
    """Yield a staging folder. On success it becomes `goal` and replaces an earlier export.

    With `packed`, only its file with the name of `goal` does, and replaces an earlier package.
    """
    goal = goal.resolve()
    check = _check_file if packed else _check_folder
    check(goal)
    with atomic_files.exclusive_target(goal), atomic_files.temporary_folder(goal) as new:
        yield new
        check(goal)  # again: `goal` may have changed during the write
        if packed:
            atomic_files.move_into_place(new / goal.name, goal)
        else:
            atomic_files.replace_folder(goal, new)


def _check_folder(goal: Path) -> None:
    """Raise a `UsageError` unless `goal` is missing, empty or an earlier export."""
    if not goal.exists() or (goal.is_dir() and not any(goal.iterdir())):
        return
    try:
        kind = read_json(goal / "manifest.json").get("format")
    except ModelError:
        kind = None
    if kind != MANIFEST_FORMAT:
        raise UsageError("output_not_exported_model", path=goal)


def _check_file(goal: Path) -> None:
    """Raise a `UsageError` unless `goal` is missing or an earlier package, which holds a certificate."""
    if not goal.exists():
        return
    with suppress(zipfile.BadZipFile, ValueError, NotImplementedError, OSError), zipfile.ZipFile(goal) as package:
        if any(Path(name).name == CERTIFICATE_FILE for name in package.namelist()):
            return
    raise UsageError("output_not_exported_package", path=goal)


def require_empty(folder: Path) -> None:
    """Raise a `UsageError` unless the folder is missing or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("output_folder_not_empty", folder=folder)


def model_max_length(model: TextModel, limit: int = MAX_SEQUENCE_LENGTH) -> int:
    """Return the maximum length of a sequence in tokens: the limit, or fewer with learned positions."""
    config = model.network.config
    return min(limit, config.max_length) if config.positions == "learned" else limit


def write_text_files(model: TextModel, folder: Path) -> None:
    """Write tokenizers, decoding defaults and about.json, which only attendo reads."""
    save_tokenizers(folder, model.source_tokenizer, model.target_tokenizer)
    write_json(folder / "generation.json", model.stored_model.generation)
    if model.about:
        write_json(folder / ABOUT, model.about)


def check_export(folder: Path, engine: str, precisions: Collection[str]) -> tuple[Collection[str], dict[str, Any]]:
    """Check that an exported folder is unchanged. Return its file names and the facts of its manifest."""
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
