"""Crash-safe storage of the best alignment head in scores.json of a model folder."""

import shutil
from pathlib import Path
from typing import Any

from attendo import atomic_files
from attendo.explore.head_stats import HeadReport
from attendo.model_files import read_json, write_json
from attendo.model_folder import FORMAT, VERSION, check_manifest, write_manifest
from attendo.text_model.alignment import ALIGNMENT_HEAD

_SCORES, _MANIFEST = "scores.json", "manifest.json"


def store_alignment_head(folder: Path, report: HeadReport) -> dict[str, Any]:
    """Write the report's best head to scores.json and return the new entry.

    The manifest is checked first, so a damaged file does not get a new checksum. A changed copy of the folder then
    replaces it. All other files stay unchanged.
    """
    folder = folder.resolve()
    listed = check_manifest(folder, FORMAT, VERSION)["files"]
    entry = report.alignment_head
    scores = {**read_json(folder / _SCORES), ALIGNMENT_HEAD: entry}
    with atomic_files.temporary_folder(folder, sum(path.stat().st_size for path in folder.iterdir())) as new:
        _copy(folder, new, listed, scores)
        atomic_files.replace_folder(folder, new)
    return entry


def _copy(folder: Path, new: Path, listed: dict[str, Any], scores: dict[str, Any]) -> None:
    for name in listed:
        shutil.copy2(folder / name, new / name)
    write_json(new / _SCORES, scores)
    write_manifest(new, FORMAT, VERSION)
    # Files outside the manifest are not part of the model. They are copied too.
    for path in folder.iterdir():
        if path.name not in (*listed, _MANIFEST):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, new / path.name)
