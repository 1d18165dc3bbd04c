"""An import takes at most 1.3 times the memory of the weights, because they are read one by one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

SCRIPT = Path(__file__).with_name("import_memory.py")
ROWS, WIDTH, INNER, LAYERS = 30_000, 512, 2048, 3

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the peak from /proc")


def write_t5_weights(folder: Path, dtype: torch.dtype) -> int:
    """Two tables and three layers a stack, in two files. Returns the bytes."""
    shapes = {"shared.weight": (ROWS, WIDTH), "lm_head.weight": (ROWS, WIDTH)}
    for stack in ("encoder", "decoder"):
        shapes[f"{stack}.final_layer_norm.weight"] = (WIDTH,)
        shapes[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (32, 8)
        for layer in range(LAYERS):
            parts = ["SelfAttention"] if stack == "encoder" else ["SelfAttention", "EncDecAttention"]
            for number, part in enumerate(parts):
                for name in "qkvo":
                    shapes[f"{stack}.block.{layer}.layer.{number}.{part}.{name}.weight"] = (WIDTH, WIDTH)
            last = f"{stack}.block.{layer}.layer.{len(parts)}.DenseReluDense"
            shapes |= {f"{last}.wi_0.weight": (INNER, WIDTH), f"{last}.wi_1.weight": (INNER, WIDTH)}
            shapes[f"{last}.wo.weight"] = (WIDTH, INNER)
            for number in range(len(parts) + 1):
                shapes[f"{stack}.block.{layer}.layer.{number}.layer_norm.weight"] = (WIDTH,)
    return write_weights(folder, shapes, dtype)


def write_weights(folder: Path, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> int:
    dice, weights = torch.Generator().manual_seed(1), dict[str, Tensor]()
    for name, shape in shapes.items():
        weights[name] = torch.randn(shape, generator=dice).to(dtype)
    names = sorted(weights)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in halves.items():
        save_file({name: weights[name] for name in some}, folder / file, {"format": "pt"})
    index = {"weight_map": {name: file for file, some in halves.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return sum(weight.nbytes for weight in weights.values())


CONFIG: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": ROWS,
    "d_model": WIDTH,
    "d_kv": 64,
    "num_heads": 8,
    "d_ff": INNER,
    "num_layers": LAYERS,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("dtype", "written"),
    [
        (torch.bfloat16, "keep"),
        pytest.param(torch.bfloat16, "float32", marks=pytest.mark.slow),
        pytest.param(torch.float32, "float32", marks=pytest.mark.slow),
    ],
)
def test_an_import_needs_little_more_than_the_weights(tmp_path: Path, dtype: torch.dtype, written: str) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    size = write_t5_weights(folder, dtype)
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(tmp_path / "out"), written],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    weights = size * 2 if dtype != torch.float32 and written == "float32" else size
    stored = (tmp_path / "out" / "weights.safetensors").stat().st_size
    assert weights <= stored < 1.01 * weights + 2**18  # with a row for bos
    assert int(ended.stdout) <= 1.3 * weights
    print(f"{dtype} {written}: {int(ended.stdout) / weights:.3f} of {weights:,} bytes")
