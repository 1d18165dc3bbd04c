"""The log-probabilities of the target's tokens equal the plain formula, gradients included."""

import pytest
import torch

from attendo.nn import token_scores
from attendo.nn.token_scores import emission_scores

NEVER = float("-inf")


@pytest.mark.parametrize("sentences_at_once", [1, 2, 5])
def test_emission_scores_and_their_gradients_equal_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, sentences_at_once: int
) -> None:
    monkeypatch.setattr(token_scores, "_CHUNK_NUMBERS", sentences_at_once * 4 * 7)
    logits = torch.randn(5, 4, 7, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[3, 4, 4], [5, 6, 3], [1, 1, 1], [6, 5, 4], [3, 3, 5]])  # equal tokens share a gradient
    silent = torch.tensor([0, 2])
    plain = logits.index_fill(2, silent, NEVER).log_softmax(-1).gather(2, ids[:, None].expand(-1, 4, -1))
    found = emission_scores(logits, ids, (0, 2))
    torch.testing.assert_close(found, plain)
    weights = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), logits), torch.autograd.grad((plain * weights).sum(), logits)
    )


def test_emission_scores_of_half_precision_logits_are_float32() -> None:
    logits = torch.randn(2, 3, 50).bfloat16().requires_grad_()
    found = emission_scores(logits, torch.tensor([[4], [5]]), (0,))
    (grad,) = torch.autograd.grad(found.sum(), logits)
    assert (found.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
    wide = logits.detach().float()
    wide[..., 0] = NEVER
    torch.testing.assert_close(found, wide.log_softmax(-1).gather(2, torch.tensor([[[4]] * 3, [[5]] * 3])))
