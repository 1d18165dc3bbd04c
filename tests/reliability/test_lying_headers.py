"""X6: a weights file whose header lies is an error, wherever it is read, and nobody makes room for what it promises."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment
from sealed_folders import (
    checkpoint_of,
    foreign,
    model,
    read_checkpoint,
    read_foreign,
    read_model,
    refused,
    replaced,
)

ROOM = 50 * 1024**2
STATUS = Path("/proc/self/status")
FOLDERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None], str]] = {
    "model": (model, read_model, "weights.safetensors"),
    "checkpoint": (checkpoint_of, read_checkpoint, "optimizer.safetensors"),
    "import": (foreign, read_foreign, "model.safetensors"),
}


def tensor(shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def written(header: bytes | dict[str, Any], data: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def empty_tensors(count: int) -> bytes:
    """As many as are asked for, without a number in any: each is right by itself."""
    rows = (b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number for number in range(count))
    return written(b"{" + b",".join(rows) + b"}")


LIES = {
    "a header of 2^62 bytes": struct.pack("<Q", 2**62) + b"{}",
    "a header of 90 MB": struct.pack("<Q", 90_000_000) + b"{}",
    "a header longer than the file": struct.pack("<Q", 1_000) + b"{}",
    "no header": b"\x01",
    "tensors that overlap": written({"a": tensor([4], 0, 16), "b": tensor([4], 8, 24)}, 24),
    "a gap between tensors": written({"a": tensor([4], 0, 16), "b": tensor([1], 20, 24)}, 24),
    "an end before its beginning": written({"a": tensor([4], 16, 0)}, 16),
    "100 GB in a file of 24 bytes": written({"a": tensor([25_000_000_000], 0, 100_000_000_000)}, 24),
    "a shape of 100 GB for 24 bytes": written({"a": tensor([25_000_000_000], 0, 24)}, 24),
    "a shape beyond all numbers": written({"a": tensor([2**62, 2**62], 0, 24)}, 24),
    "a shape below zero": written(b'{"a":{"dtype":"F32","shape":[-6,-1],"data_offsets":[0,24]}}', 24),
    "a thousand brackets": written(b'{"a":' + b"[" * 100_000 + b"}", 24),
    "as many tensors as a header may hold": empty_tensors(36_000),
}


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lies") / "million.safetensors"
    path.write_bytes(empty_tensors(1_000_000))
    return path


@pytest.mark.short(12)
@pytest.mark.parametrize("place", FOLDERS)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_an_error(tmp_path: Path, lie: str, place: str) -> None:
    make, read, name = FOLDERS[place]
    folder = make(tmp_path)
    replaced(folder, name, LIES[lie])
    if place == "checkpoint" and lie.startswith("as many"):
        read(folder)  # it is true, and which tensors are wanted is asked later
        return
    memory = Memory()
    assert str(folder) in refused(read, folder)
    assert memory.grown() < ROOM


@pytest.mark.short(1)
@pytest.mark.parametrize("place", FOLDERS)
def test_a_million_tensors_are_not_even_looked_at(tmp_path: Path, million: Path, place: str) -> None:
    make, read, name = FOLDERS[place]
    folder = make(tmp_path)
    replaced(folder, name, million)
    memory = Memory()
    assert fragment("safetensors_header_too_large") in refused(read, folder)
    assert memory.grown() < ROOM


@pytest.mark.parametrize(
    "changes",
    [
        {"target_vocab_size": 10**10},
        {"source_vocab_size": 10**10},
        {"d_model": 10**6},
        {"d_ff": 10**9},
        {"num_encoder_layers": 10**6},
        {"num_decoder_layers": 10**6, "d_ff": 1},
        {"d_value": 10**9},
        {"positions": "learned", "max_length": 10**10},
    ],
)
def test_no_room_is_made_for_a_network_that_config_json_only_claims(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = model(tmp_path)
    told = json.loads((folder / "config.json").read_text("utf-8"))
    replaced(folder, "config.json", json.dumps({**told, **changes}).encode())
    memory = Memory()
    assert fragment("weights_do_not_fit") in refused(read_model, folder)
    assert memory.grown() < ROOM


class Memory:
    """How much more this process held, at most, than when this was made; the kernel counts it."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
        except OSError:
            pytest.skip("this system does not tell how much memory a process held at most")
        self._before = _bytes("VmRSS")

    def grown(self) -> int:
        return _bytes("VmHWM") - self._before


def _bytes(name: str) -> int:
    rows = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(rows[name].split()[0]) * 1024
