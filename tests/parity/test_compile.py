"""torch.compile compiles the network without graph breaks, and gives the same logits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("positions", "norm"), [("sinusoidal", "pre"), ("learned", "post"), ("rotary", "pre"), ("relative", "pre")]
)
def test_forward_and_step_compile_without_a_graph_break(positions: str, norm: str) -> None:
    assert _compare("eager", positions, norm) == "equal\n"


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
def test_compiled_logits_equal_eager_ones(positions: str) -> None:
    assert _compare("inductor", positions, "pre") == "equal\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "r_drop", "max_count"),
    [
        ("on", "0", 2),
        ("on", "1", 2),  # with and without a mask; one for each number of pairs would take longer than it saves
        ("blocks", "0", 4),  # two kinds of blocks, keys and values of the memory, the loss; for any number of layers
        ("blocks", "1", 4),
    ],
)
def test_training_is_compiled_once_for_all_batch_shapes(mode: str, r_drop: str, max_count: int) -> None:
    assert max_count / 2 <= int(_run_script("compiled_training.py", mode, r_drop)) <= max_count


def _compare(backend: str, positions: str, norm: str) -> str:
    return _run_script("compiled_network.py", backend, positions, norm)


def _run_script(script: str, *arguments: str) -> str:
    """Run in a separate process, because the shape checks of this one would break the graph."""
    result = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTENDO_SHAPES": "off", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
