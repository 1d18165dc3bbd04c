"""Compiled for one object at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attendo.decode.static_batch import compile_method


class Doubling:
    def __init__(self, size: int) -> None:
        self.here = torch.ones(size)

    def work(self) -> None:
        self.here.copy_(self.here + self.here)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in torch itself
def test_any_number_of_objects_can_have_the_same_method_compiled() -> None:
    many = [Doubling(size) for size in range(2, 14)]  # more than the compiler bears with for one piece of code
    found: list[Tensor] = []
    for each in many:
        compile_method(each.work)()
        found.append(each.here)
    assert all(torch.equal(here, torch.full_like(here, 2.0)) for here in found)


@pytest.mark.slow
def test_slots_read_prefixes_and_answer_in_compiled_code() -> None:
    """Compiled for Python, which shows that nothing is in the compiler's way.

    In a process of its own, because the shape checks of this one would break the graph.
    """
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compiled_slots.py")), "eager"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTENDO_SHAPES": "off", "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "equal\n", done.stderr[-3000:]
