"""Products by other ways than the library's own give the same."""

import pytest
import torch
import torch.nn.functional as F

from attendo.nn import linear as products
from attendo.nn.linear import linear, linear_relu


@pytest.mark.parametrize("one_row", [False, True])
@pytest.mark.parametrize("bias", [None, torch.randn(5)])
def test_a_product_is_that_of_the_library(
    bias: torch.Tensor | None, one_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_is_compiled_single_row", lambda x: one_row)
    x, weight = torch.randn(2, 3, 7), torch.randn(5, 7)
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("one_row", [False, True])
def test_a_bent_product_has_nothing_below_zero(one_row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_is_compiled_single_row", lambda x: one_row)
    x, weight, bias = torch.randn(2, 3, 7), torch.randn(5, 7), torch.randn(5)
    torch.testing.assert_close(linear_relu(x, weight, bias), F.relu(F.linear(x, weight, bias)))


def test_on_a_gpu_one_kernel_bends_too() -> None:
    x, weight, bias = torch.randn(2, 3, 7), torch.randn(5, 7), torch.randn(5)
    torch.testing.assert_close(products.fused_linear_relu(x, weight, bias), F.relu(F.linear(x, weight, bias)))
