"""X6: a safetensors file with a false header raises an error, and no memory is allocated for its claimed size."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment
from tampered_folders import (
    make_checkpoint,
    make_foreign,
    make_model,
    read_checkpoint,
    read_foreign,
    read_model,
    rejection,
    replace_file,
)

MAX_GROWTH = 50 * 1024**2
STATUS = Path("/proc/self/status")
FOLDERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None], str]] = {
    "model": (make_model, read_model, "weights.safetensors"),
    "checkpoint": (make_checkpoint, read_checkpoint, "optimizer.safetensors"),
    "import": (make_foreign, read_foreign, "model.safetensors"),
}


def tensor(shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def safetensors_bytes(header: bytes | dict[str, Any], data: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def empty_tensors(count: int) -> bytes:
    """A file with `count` empty tensors. Each of them is valid."""
    rows = (b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number for number in range(count))
    return safetensors_bytes(b"{" + b",".join(rows) + b"}")


FALSE_FILES = {
    "a header of 2^62 bytes": struct.pack("<Q", 2**62) + b"{}",
    "a header of 90 MB": struct.pack("<Q", 90_000_000) + b"{}",
    "a header longer than the file": struct.pack("<Q", 1_000) + b"{}",
    "no header": b"\x01",
    "tensors that overlap": safetensors_bytes({"a": tensor([4], 0, 16), "b": tensor([4], 8, 24)}, 24),
    "a gap between tensors": safetensors_bytes({"a": tensor([4], 0, 16), "b": tensor([1], 20, 24)}, 24),
    "an end before its beginning": safetensors_bytes({"a": tensor([4], 16, 0)}, 16),
    "100 GB in a file of 24 bytes": safetensors_bytes({"a": tensor([25_000_000_000], 0, 100_000_000_000)}, 24),
    "a shape of 100 GB for 24 bytes": safetensors_bytes({"a": tensor([25_000_000_000], 0, 24)}, 24),
    "a shape beyond all numbers": safetensors_bytes({"a": tensor([2**62, 2**62], 0, 24)}, 24),
    "a shape below zero": safetensors_bytes(b'{"a":{"dtype":"F32","shape":[-6,-1],"data_offsets":[0,24]}}', 24),
    "a thousand brackets": safetensors_bytes(b'{"a":' + b"[" * 100_000 + b"}", 24),
    "as many tensors as a header may hold": empty_tensors(36_000),
}


@pytest.fixture(scope="module")
def million_tensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lies") / "million.safetensors"
    path.write_bytes(empty_tensors(1_000_000))
    return path


@pytest.mark.short(12)
@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("case", FALSE_FILES)
def test_false_header_is_rejected(tmp_path: Path, case: str, kind: str) -> None:
    make, read, name = FOLDERS[kind]
    folder = make(tmp_path)
    replace_file(folder, name, FALSE_FILES[case])
    if kind == "checkpoint" and case.startswith("as many"):
        read(folder)  # the header is valid; the names of the tensors are checked later
        return
    memory = Memory()
    assert str(folder) in rejection(read, folder)
    assert memory.peak_growth() < MAX_GROWTH


@pytest.mark.short(1)
@pytest.mark.parametrize("kind", FOLDERS)
def test_header_with_a_million_tensors_is_not_parsed(tmp_path: Path, million_tensors: Path, kind: str) -> None:
    make, read, name = FOLDERS[kind]
    folder = make(tmp_path)
    replace_file(folder, name, million_tensors)
    memory = Memory()
    assert fragment("safetensors_header_too_large") in rejection(read, folder)
    assert memory.peak_growth() < MAX_GROWTH


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
def test_sizes_in_config_json_allocate_no_memory(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = make_model(tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    replace_file(folder, "config.json", json.dumps({**config, **changes}).encode())
    memory = Memory()
    assert fragment("weights_do_not_fit") in rejection(read_model, folder)
    assert memory.peak_growth() < MAX_GROWTH


class Memory:
    """The peak growth of this process's resident memory since this object was created, from the kernel."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        except OSError:
            pytest.skip("this system does not report the peak memory of a process")
        self._before = _read_status("VmRSS")

    def peak_growth(self) -> int:
        return _read_status("VmHWM") - self._before


def _read_status(name: str) -> int:
    rows = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(rows[name].split()[0]) * 1024
