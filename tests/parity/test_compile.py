"""torch.compile swallows the network whole, and gives the same logits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


@pytest.mark.slow
@pytest.mark.parametrize(("positions", "norm"), [("sinusoidal", "pre"), ("learned", "post"), ("rotary", "pre")])
def test_forward_and_step_compile_without_a_graph_break(positions: str, norm: str) -> None:
    assert _compare("eager", positions, norm) == "equal\n"


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
def test_compiled_logits_equal_eager_ones(positions: str) -> None:
    assert _compare("inductor", positions, "pre") == "equal\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "r_drop", "most"),
    [
        ("on", "0", 2),
        ("on", "1", 2),  # with a mask and without: for each new number of pairs it would take longer than it saves
        ("blocks", "0", 4),  # two kinds of blocks, keys and values of the memory, the loss: however many layers
        ("blocks", "1", 4),
    ],
)
def test_learning_is_compiled_once_for_batches_of_any_shape(how: str, r_drop: str, most: int) -> None:
    assert most / 2 <= int(_said("compiled_learning.py", how, r_drop)) <= most


def _compare(backend: str, positions: str, norm: str) -> str:
    return _said("compiled_network.py", backend, positions, norm)


def _said(script: str, *arguments: str) -> str:
    """In a process of its own, because the shape checks of this one would break the graph."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTENDO_SHAPES": "off", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
