"""Log-probabilities of the target's tokens at every position of a canvas, from the logits.

B batch, T target tokens without EOS, L positions.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

NEVER = float("-inf")  # the log-probability of what is impossible
_CHUNK_NUMBERS = 1 << 23  # logits widened at once: 32 MB in float32


def emission_scores(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], silent: tuple[int, ...]
) -> Float[Tensor, "B L T"]:
    """Return the log-probabilities of these tokens at every position. Tokens in `silent` have probability 0.

    They may be in `ids` only as padding, whose log-probabilities mean nothing.
    """
    result: Tensor = _EmissionScores.apply(logits, ids, silent)
    return result


class _EmissionScores(torch.autograd.Function):
    """Keeps the logits in their own precision and one sum per position, instead of float32 probabilities.

    A canvas has several times as many positions as the target has tokens, so [B, L, V] in float32 would be the largest
    tensor of a training step. A few sentences at a time are widened, so that they stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, silent: tuple[int, ...]) -> Tensor:
        impossible = _impossible_tokens(logits, silent)
        totals = torch.cat([(widen(part) + impossible).logsumexp(-1, keepdim=True) for part in _split(logits)])
        ctx.save_for_backward(logits, ids, impossible, totals)
        return widen(logits.gather(2, ids[:, None].expand(-1, logits.shape[1], -1))) - totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, impossible, totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        size = len(_split(logits)[0]) if len(logits) else 1
        for start in range(0, len(logits), size):
            part = slice(start, start + size)
            wide = (widen(logits[part]) + (impossible - totals[part])).exp_()
            wide *= -grad[part].sum(-1, keepdim=True)
            wide.scatter_add_(2, ids[part, None].expand(-1, logits.shape[1], -1), grad[part])
            grad_logits[part] = wide
        return grad_logits, None, None


def _split(logits: Float[Tensor, "B L V"]) -> tuple[Tensor, ...]:
    sentence = max(1, logits[0].numel()) if len(logits) else 1
    return logits.split(max(1, _CHUNK_NUMBERS // sentence))


def _impossible_tokens(logits: Float[Tensor, "B L V"], silent: tuple[int, ...]) -> Float[Tensor, " V"]:
    """Return -inf for the tokens in `silent`, 0 for the others."""
    impossible = widen(logits.new_zeros(logits.shape[-1]))
    for token in silent:
        impossible[token : token + 1].fill_(NEVER)  # a slice: a single number would be copied from the host
    return impossible


def widen(scores: Tensor) -> Tensor:
    return scores if scores.dtype == torch.float64 else scores.float()
