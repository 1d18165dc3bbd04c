"""Residual connections, pre-norm and post-norm."""

import pytest
import torch
from torch import nn

from attendo.nn.residual import Residual, make_norm


def _norm() -> nn.LayerNorm:
    norm = nn.LayerNorm(4)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def test_pre_norm_normalises_the_input_of_the_sublayer() -> None:
    norm, x, y = _norm(), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    residual = Residual(norm, "pre")
    skip, entered = residual.enter(x)
    assert skip is x
    torch.testing.assert_close(entered, norm(x))
    assert torch.equal(residual.leave(x, y), x + y)


def test_post_norm_normalises_the_sum() -> None:
    norm, x, y = _norm(), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    residual = Residual(norm, "post")
    assert all(each is x for each in residual.enter(x))
    torch.testing.assert_close(residual.leave(x, y), norm(x + y))


def test_dropout_applies_to_the_sublayer_only() -> None:
    torch.manual_seed(0)
    residual = Residual(nn.Identity(), "pre", dropout=0.5).train()
    x = torch.full((4, 8, 16), 3.0)
    output = residual.leave(x, torch.ones_like(x))
    assert set(output.unique().tolist()) == {3.0, 5.0}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_rms_norm_takes_the_mean_of_squares_in_float32(dtype: torch.dtype) -> None:
    """Their squares and sums exceed the largest number of fp16."""
    x = (600 * torch.randn(4, 512, generator=torch.Generator().manual_seed(0))).to(dtype)
    expected = x.double() / x.double().square().mean(-1, keepdim=True).sqrt()
    found = make_norm("rms", 512, 1e-6).to(dtype)(x)
    assert ((found.double() - expected).abs() <= torch.finfo(dtype).eps * expected.abs() + 1e-6).all()


def test_norms_equal_their_formulas() -> None:
    x = torch.randn(2, 3, 4)
    layer, rms = make_norm("layer", 4, 1e-5), make_norm("rms", 4, 1e-5)
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


def test_the_given_epsilon_is_used() -> None:
    flat = torch.zeros(1, 1, 4)
    flat[..., 0] = 1e-3
    assert make_norm("layer", 4, 1e-12)(flat).abs().max() > 1
    assert make_norm("layer", 4, 1.0)(flat).abs().max() < 1e-2
