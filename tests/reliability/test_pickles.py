"""X2: a file that would run code when it is unpickled, offered as any file of a model, is refused and never run."""

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
from sealed_folders import (
    CHECKPOINT_FILES,
    checkpoint_of,
    foreign,
    model,
    read_checkpoint,
    read_foreign,
    read_model,
    refused,
    replaced,
)

from attendo.errors import ModelError
from attendo.text import load_tokenizer
from attendo.text.tokenizer_files import write_header

MODEL_FILES = (
    *("weights.safetensors", "config.json", "generation.json", "scores.json", "manifest.json"),
    *("source.tokenizer.json", "target.tokenizer.json"),
)
PIECES = {"sentencepiece": "joint.spm", "foreign_pieces": "joint.spm", "byte_pairs": "joint.merges.txt"}
FOREIGN_FILES = ("pytorch_model.bin", "model.pt", "weights.ckpt", "model.npz", "pytorch_model-00001-of-00002.bin")


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.sentinel,)


def torch_saved(bomb: Bomb, zipped: bool) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": bomb}, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def numpy_saved(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    np.savez(file, weight=np.array([bomb], dtype=object))
    return file.getvalue()


BOMBS: dict[str, Callable[[Bomb], bytes]] = {
    "text protocol": lambda bomb: pickle.dumps(bomb, 0),
    "binary protocol": lambda bomb: pickle.dumps(bomb, 2),
    "newest protocol": pickle.dumps,
    "torch": lambda bomb: torch_saved(bomb, zipped=True),
    "old torch": lambda bomb: torch_saved(bomb, zipped=False),
    "numpy": numpy_saved,
}


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    return tmp_path / "sentinel"


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest, sentinel: Path) -> bytes:
    return BOMBS[request.param](Bomb(sentinel))


def test_a_bomb_goes_off_where_it_is_unpickled(sentinel: Path) -> None:
    pickle.loads(BOMBS["newest protocol"](Bomb(sentinel)))
    assert sentinel.exists()


@pytest.mark.short(3)
def test_in_a_model_folder_it_is_refused(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = model(tmp_path)
    for name in MODEL_FILES:
        whole, sealed = (folder / name).read_bytes(), (folder / "manifest.json").read_bytes()
        replaced(folder, name, bomb)
        assert name in refused(read_model, folder)
        replaced(folder, name, whole)
        (folder / "manifest.json").write_bytes(sealed)
    read_model(folder)
    assert not sentinel.exists()


def test_in_a_checkpoint_it_is_refused(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = checkpoint_of(tmp_path)
    for name in CHECKPOINT_FILES:
        whole, sealed = (folder / name).read_bytes(), (folder / "manifest.json").read_bytes()
        replaced(folder, name, bomb)
        assert name in refused(read_checkpoint, folder)
        replaced(folder, name, whole)
        (folder / "manifest.json").write_bytes(sealed)
    read_checkpoint(folder)
    assert not sentinel.exists()


@pytest.mark.parametrize("kind", PIECES)
def test_as_the_pieces_of_a_tokenizer_it_is_refused(tmp_path: Path, sentinel: Path, bomb: bytes, kind: str) -> None:
    write_header(tmp_path, "joint", kind, None if kind == "sentencepiece" else ["a"])
    (tmp_path / PIECES[kind]).write_bytes(bomb)
    with pytest.raises(ModelError, match=re.escape(PIECES[kind])):
        load_tokenizer(tmp_path, "joint")
    assert not sentinel.exists()


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_a_folder_with_nothing_but_a_pickle_is_not_imported(
    tmp_path: Path, sentinel: Path, bomb: bytes, name: str
) -> None:
    folder = foreign(tmp_path)
    (folder / "model.safetensors").unlink()
    replaced(folder, name, bomb)
    told = refused(read_foreign, folder)
    assert name in told
    assert fragment("weights_format_unsafe") in told
    assert not sentinel.exists()


def test_under_another_name_it_is_not_imported_either(tmp_path: Path, sentinel: Path, bomb: bytes) -> None:
    folder = foreign(tmp_path)
    for name in ("model.safetensors", "config.json"):
        whole = (folder / name).read_bytes()
        replaced(folder, name, bomb)
        assert name in refused(read_foreign, folder)
        replaced(folder, name, whole)
    (folder / "model.safetensors").unlink()
    replaced(folder, "model.safetensors.index.json", b'{"weight_map": {"x": "pytorch_model.bin"}}')
    replaced(folder, "pytorch_model.bin", bomb)
    assert "pytorch_model.bin is not a readable safetensors file" in refused(read_foreign, folder)
    assert not sentinel.exists()
