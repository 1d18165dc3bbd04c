"""The kernels of training equal PyTorch's operations in float64, gradients included."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attendo.nn.triton_launch import HAS_TRITON, runs_kernels

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed: it comes with torch for GPUs")
@pytest.mark.parametrize("devices", ["", None])
@pytest.mark.parametrize("script", ["training_kernels.py", "parallel_loss.py"])
def test_the_kernels_equal_pytorch(script: str, devices: str | None) -> None:
    """In a process of its own, because Triton chooses between its interpreter and a GPU when it is imported."""
    if devices is None and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}", "--compare-only"],
        env={**os.environ, "PYTHONPATH": paths} | ({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if '"passed": true' not in line]
    assert (done.returncode, failed) == (0, []), done.stderr


def test_no_kernel_runs_on_a_cpu() -> None:
    assert not runs_kernels(torch.zeros(2))
