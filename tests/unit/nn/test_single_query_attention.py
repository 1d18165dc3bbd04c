"""The kernel for single queries equals the formula."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attendo.nn import single_query_attention
from tests.unit.nn.single_query_cases import CASES, Sizes, largest_difference

TOLERANCES = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def test_the_interpreted_kernel_equals_the_formula() -> None:
    pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for GPUs")
    root = Path(__file__).parents[3]
    child = subprocess.run(
        [sys.executable, "-m", "tests.unit.nn.single_query_cases"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(child.stdout) < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("sizes", CASES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_gpu_kernel_equals_the_formula(sizes: Sizes, dtype: torch.dtype) -> None:
    assert largest_difference(sizes, "cuda", dtype) < TOLERANCES[dtype]


@torch.no_grad()
def test_the_kernel_is_not_used_on_a_cpu() -> None:
    assert not single_query_attention.is_supported(torch.zeros(2, 3, 1, 4))
