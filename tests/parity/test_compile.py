"""torch.compile swallows the network whole, and gives the same logits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compiled_network.py")
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


@pytest.mark.parametrize(("positions", "norm"), [("sinusoidal", "pre"), ("learned", "post"), ("rotary", "pre")])
def test_forward_and_step_compile_without_a_graph_break(positions: str, norm: str) -> None:
    assert _compare("eager", positions, norm) == "equal\n"


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
def test_compiled_logits_equal_eager_ones(positions: str) -> None:
    assert _compare("inductor", positions, "pre") == "equal\n"


def _compare(backend: str, positions: str, norm: str) -> str:
    """In a process of its own, because the shape checks of this one would break the graph."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), backend, positions, norm],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTENDO_SHAPES": "off", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
