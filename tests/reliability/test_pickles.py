"""X2: a malicious pickle in the place of any model file is rejected and never unpickled."""

import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_codes import fragment
from tampered_folders import (
    CHECKPOINT_FILES,
    make_checkpoint,
    make_foreign,
    make_model,
    read_checkpoint,
    read_foreign,
    read_model,
    rejection,
    replace_file,
)

from attendo.errors import ModelError
from attendo.text import load_tokenizer
from attendo.text.tokenizer import write_header

MODEL_FILES = (
    *("weights.safetensors", "config.json", "generation.json", "scores.json", "manifest.json"),
    *("source.tokenizer.json", "target.tokenizer.json"),
)
PIECES = {"sentencepiece": "joint.spm", "foreign_pieces": "joint.spm", "byte_pairs": "joint.merges.txt"}
FOREIGN_FILES = ("pytorch_model.bin", "model.pt", "weights.ckpt", "model.npz", "pytorch_model-00001-of-00002.bin")


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.sentinel,)


def save_with_torch(bomb: Bomb, zipped: bool) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": bomb}, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def save_with_numpy(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    np.savez(file, weight=np.array([bomb], dtype=object))
    return file.getvalue()


BOMBS: dict[str, Callable[[Bomb], bytes]] = {
    "text protocol": lambda bomb: pickle.dumps(bomb, 0),
    "binary protocol": lambda bomb: pickle.dumps(bomb, 2),
    "newest protocol": pickle.dumps,
    "torch": lambda bomb: save_with_torch(bomb, zipped=True),
    "old torch": lambda bomb: save_with_torch(bomb, zipped=False),
    "numpy": save_with_numpy,
}


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    return tmp_path / "sentinel"


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest, sentinel: Path) -> bytes:
    return BOMBS[request.param](Bomb(sentinel))


def test_unpickling_the_bomb_creates_the_file(sentinel: Path) -> None:
    pickle.loads(BOMBS["newest protocol"](Bomb(sentinel)))
    assert sentinel.exists()


@pytest.mark.short(3)
def test_pickle_in_a_model_folder_is_rejected(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = make_model(tmp_path)
    for name in MODEL_FILES:
        original, manifest = (folder / name).read_bytes(), (folder / "manifest.json").read_bytes()
        replace_file(folder, name, bomb)
        assert name in rejection(read_model, folder)
        replace_file(folder, name, original)
        (folder / "manifest.json").write_bytes(manifest)
    read_model(folder)
    assert not sentinel.exists()


def test_pickle_in_a_checkpoint_is_rejected(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = make_checkpoint(tmp_path)
    for name in CHECKPOINT_FILES:
        original, manifest = (folder / name).read_bytes(), (folder / "manifest.json").read_bytes()
        replace_file(folder, name, bomb)
        assert name in rejection(read_checkpoint, folder)
        replace_file(folder, name, original)
        (folder / "manifest.json").write_bytes(manifest)
    read_checkpoint(folder)
    assert not sentinel.exists()


@pytest.mark.parametrize("kind", PIECES)
def test_pickle_as_tokenizer_file_is_rejected(tmp_path: Path, sentinel: Path, bomb: bytes, kind: str) -> None:
    write_header(tmp_path, "joint", kind, None if kind == "sentencepiece" else ["a"])
    (tmp_path / PIECES[kind]).write_bytes(bomb)
    with pytest.raises(ModelError, match=re.escape(PIECES[kind])):
        load_tokenizer(tmp_path, "joint")
    assert not sentinel.exists()


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_folder_with_only_a_pickle_is_not_imported(tmp_path: Path, sentinel: Path, bomb: bytes, name: str) -> None:
    folder = make_foreign(tmp_path)
    (folder / "model.safetensors").unlink()
    replace_file(folder, name, bomb)
    error = rejection(read_foreign, folder)
    assert name in error
    assert fragment("weights_format_unsafe") in error
    assert not sentinel.exists()


def test_pickle_under_another_name_is_not_imported(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = make_foreign(tmp_path)
    for name in ("model.safetensors", "config.json"):
        original = (folder / name).read_bytes()
        replace_file(folder, name, bomb)
        assert name in rejection(read_foreign, folder)
        replace_file(folder, name, original)
    (folder / "model.safetensors").unlink()
    replace_file(folder, "model.safetensors.index.json", b'{"weight_map": {"x": "pytorch_model.bin"}}')
    replace_file(folder, "pytorch_model.bin", bomb)
    assert "pytorch_model.bin is not a readable safetensors file" in rejection(read_foreign, folder)
    assert not sentinel.exists()
