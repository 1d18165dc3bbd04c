"""Matrix products by other kernels equal those of torch."""

import pytest
import torch
import torch.nn.functional as F

from attendo.nn import linear as linear_module
from attendo.nn.linear import linear, linear_relu


@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("bias", [None, torch.randn(5)])
def test_linear_equals_torch(bias: torch.Tensor | None, one_row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "_is_compiled_single_row", lambda x: one_row)
    x, weight = torch.randn(2, 3, 7), torch.randn(5, 7)
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("one_row", [False, True])
def test_linear_relu_equals_torch(one_row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "_is_compiled_single_row", lambda x: one_row)
    x, weight, bias = torch.randn(2, 3, 7), torch.randn(5, 7), torch.randn(5)
    torch.testing.assert_close(linear_relu(x, weight, bias), F.relu(F.linear(x, weight, bias)))


def test_fused_linear_relu_equals_torch() -> None:
    x, weight, bias = torch.randn(2, 3, 7), torch.randn(5, 7), torch.randn(5)
    torch.testing.assert_close(linear_module.fused_linear_relu(x, weight, bias), F.relu(F.linear(x, weight, bias)))
