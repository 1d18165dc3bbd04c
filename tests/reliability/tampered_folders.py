"""Folders that attendo wrote, with one file replaced and the manifest updated, as an attacker would do."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import tiny_model

from attendo import model_files
from attendo.errors import ModelError
from attendo.interop.import_model import from_folder
from attendo.text_model import load
from attendo.train import checkpoint
from attendo.train.checkpoint import Checkpoints, Snapshot

STEP = 10
CHECKPOINT_FILES = (*(f"{name}.safetensors" for name in checkpoint.FILES), "state.json", "manifest.json")


def make_model(folder: Path) -> Path:
    tiny_model().save(folder / "model")
    return folder / "model"


def make_checkpoint(folder: Path) -> Path:
    tensors = {"x": torch.zeros(1)}
    checkpoints = Checkpoints(folder)
    checkpoints.save(Snapshot(STEP, tensors, tensors, tensors, {}))
    return checkpoints.path(STEP)


def make_foreign(folder: Path) -> Path:
    """A folder of the transformers library with empty weights."""
    (folder / "config.json").write_text(json.dumps({"model_type": "marian"}))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def replace_file(folder: Path, name: str, content: bytes | Path) -> None:
    """Replace a file. If there is a manifest, update its checksums."""
    path = folder / name
    path.unlink(missing_ok=True)
    if isinstance(content, Path):
        path.hardlink_to(content)
    else:
        path.write_bytes(content)
    manifest = folder / "manifest.json"
    if not manifest.exists() or name == manifest.name:
        return
    entries = json.loads(manifest.read_text("utf-8"))
    with path.open("rb") as file:
        entries["files"][name] = {
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }
    manifest.unlink()
    without_digest = {key: value for key, value in entries.items() if key != "sha256"}
    manifest.write_text(json.dumps({**without_digest, "sha256": model_files.json_sha256(without_digest)}), "utf-8")


def read_model(folder: Path) -> None:
    load(folder, "cpu")


def read_checkpoint(folder: Path) -> None:
    assert folder.name.startswith("step-")
    Checkpoints(folder.parent).load(STEP)


def read_foreign(folder: Path) -> None:
    from_folder(folder)


def rejection(read: Callable[[Path], None], folder: Path) -> str:
    """The error message with which the folder is rejected, in one line."""
    with pytest.raises(ModelError) as error:
        read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)
