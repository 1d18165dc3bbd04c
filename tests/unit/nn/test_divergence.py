"""The divergence of two passes equals the formula of KL divergences, and its gradients those of autograd."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attendo.nn import token_scores as module
from attendo.nn.divergence import divergence


def both_ways(log_p: Tensor, log_q: Tensor) -> Tensor:
    """(KL(p ‖ q) + KL(q ‖ p)) / 2 by PyTorch's function."""
    one = functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
    other = functional.kl_div(log_p, log_q, reduction="none", log_target=True).sum(-1)
    return (one + other) / 2


def make_logits(sentences: int = 3, positions: int = 4, tokens: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    shape = (2 * sentences, positions, tokens)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("chunk", [1, 40, 1 << 20])
@pytest.mark.parametrize("silent", [(), (0, 2)])
def test_divergence_and_its_gradient_equal_the_formula(
    silent: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_NUMBERS", chunk)
    logits, said = make_logits(), [token for token in range(9) if token not in silent]
    weights = torch.rand(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = divergence(logits, silent)
    (gradient,) = torch.autograd.grad((found * weights).sum(), logits)
    expected = both_ways(*logits[..., said].log_softmax(-1).chunk(2))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), logits)[0])


def test_the_gradient_is_that_of_finite_differences() -> None:
    assert torch.autograd.gradcheck(lambda logits: divergence(logits, (1,)), (make_logits(1, 2, 5),))


def test_the_divergence_of_half_precision_logits_is_computed_in_float32() -> None:
    logits = make_logits().detach().to(torch.bfloat16).requires_grad_()
    found = divergence(logits)
    found.sum().backward()
    assert found.dtype == torch.float32
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16
    torch.testing.assert_close(found, both_ways(*logits.float().log_softmax(-1).chunk(2)))


def test_equal_passes_do_not_diverge() -> None:
    logits = make_logits().detach().chunk(2)[0].repeat(2, 1, 1)
    assert float(divergence(logits, (0,)).abs().max()) < 1e-12
