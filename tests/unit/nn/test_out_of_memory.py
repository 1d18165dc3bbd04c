"""Memory that ran out is told from other faults, on a CPU as on a GPU."""

import pytest
import torch

from attendo.nn.devices import ran_out, told


def test_a_machine_without_so_much_memory_is_told() -> None:
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**50, dtype=torch.uint8)  # more than there are addresses
    assert ran_out(failed.value)
    assert str(2**50) in told(failed.value)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("CUDA error: out of memory")]
)
def test_memory_of_a_device_or_of_python_is_memory(error: Exception) -> None:
    assert ran_out(error)
    assert "out of memory" in told(error)


def test_other_faults_are_not() -> None:
    assert not ran_out(RuntimeError("shapes do not fit"))
