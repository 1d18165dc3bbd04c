"""Memory that ran out is told from other faults, on a CPU as on a GPU."""

import pytest
import torch

from attendo.nn.devices import is_out_of_memory, oom_message


def test_a_machine_without_so_much_memory_is_told() -> None:
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**50, dtype=torch.uint8)  # more than there are addresses
    assert is_out_of_memory(failed.value)
    assert str(2**50) in oom_message(failed.value)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("CUDA error: out of memory")]
)
def test_memory_of_a_device_or_of_python_is_memory(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert "out of memory" in oom_message(error)


def test_other_faults_are_not() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
