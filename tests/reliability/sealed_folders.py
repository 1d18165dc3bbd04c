"""Folders that attendo wrote, with one file replaced and a manifest that knows of it: made to do harm."""

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


def model(folder: Path) -> Path:
    tiny_model().save(folder / "model")
    return folder / "model"


def checkpoint_of(folder: Path) -> Path:
    tensors = {"x": torch.zeros(1)}
    checkpoints = Checkpoints(folder)
    checkpoints.save(Snapshot(STEP, tensors, tensors, tensors, {}))
    return checkpoints.path(STEP)


def foreign(folder: Path) -> Path:
    """A model of transformers whose weights are all that matters."""
    (folder / "config.json").write_text(json.dumps({"model_type": "marian"}))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def replaced(folder: Path, name: str, content: bytes | Path) -> None:
    """Where there is a manifest, it is written anew, with right checksums."""
    place = folder / name
    place.unlink(missing_ok=True)
    if isinstance(content, Path):
        place.hardlink_to(content)
    else:
        place.write_bytes(content)
    manifest = folder / "manifest.json"
    if not manifest.exists() or name == manifest.name:
        return
    told = json.loads(manifest.read_text("utf-8"))
    with place.open("rb") as file:
        told["files"][name] = {"bytes": place.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    manifest.unlink()
    known = {key: value for key, value in told.items() if key != "sha256"}
    manifest.write_text(json.dumps({**known, "sha256": model_files.json_sha256(known)}), "utf-8")


def read_model(folder: Path) -> None:
    load(folder, "cpu")


def read_checkpoint(folder: Path) -> None:
    assert folder.name.startswith("step-")
    Checkpoints(folder.parent).load(STEP)


def read_foreign(folder: Path) -> None:
    from_folder(folder)


def refused(read: Callable[[Path], None], folder: Path) -> str:
    """The one line that it is refused with."""
    with pytest.raises(ModelError) as error:
        read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)
