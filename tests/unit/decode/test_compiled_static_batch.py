"""Compiled methods and the compiled static batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attendo.decode.static_batch import compile_method


class Doubler:
    def __init__(self, size: int) -> None:
        self.value = torch.ones(size)

    def work(self) -> None:
        self.value.copy_(self.value + self.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in torch itself
def test_one_method_can_be_compiled_for_many_objects() -> None:
    objects = [Doubler(size) for size in range(2, 14)]  # more than the recompilation limit of one function
    values: list[Tensor] = []
    for each in objects:
        compile_method(each.work)()
        values.append(each.value)
    assert all(torch.equal(value, torch.full_like(value, 2.0)) for value in values)


@pytest.mark.slow
def test_a_compiled_static_batch_equals_the_textbook_engine() -> None:
    """The eager backend shows that the graph can be captured.

    Runs in a separate process, because the shape checks of this process would break the graph.
    """
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compiled_static_batch.py")), "eager"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTENDO_SHAPES": "off", "OMP_NUM_THREADS": "1"},
    )
    assert result.stdout == "equal\n", result.stderr[-3000:]
