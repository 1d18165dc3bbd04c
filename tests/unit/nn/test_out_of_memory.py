"""Out-of-memory errors of CPU and GPU are recognised."""

import pytest
import torch

from attendo.nn.devices import is_out_of_memory, oom_message


def test_a_failed_cpu_allocation_is_recognised() -> None:
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**50, dtype=torch.uint8)  # more than there are addresses
    assert is_out_of_memory(failed.value)
    assert str(2**50) in oom_message(failed.value)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("CUDA error: out of memory")]
)
def test_cuda_and_python_memory_errors_are_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert "out of memory" in oom_message(error)


def test_other_errors_are_not_recognised() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
