"""The kernels of training equal the formula in float64, gradients included."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attendo.nn.triton_launch import HAS_TRITON

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed: it comes with torch for GPUs")
@pytest.mark.parametrize("devices", ["", None])
def test_the_kernels_equal_the_formula(devices: str | None) -> None:
    """In a process of its own, because Triton chooses between its interpreter and a GPU when it is imported."""
    if devices is None and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "benchmarks/training_kernels.py", "--compare-only"],
        env={**os.environ, "PYTHONPATH": paths} | ({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if '"passed": true' not in line]
    assert (done.returncode, failed) == (0, []), done.stderr
