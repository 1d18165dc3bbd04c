"""Divergence between two passes over the same positions, for R-Drop (Liang et al., 2021).

D = (KL(p ‖ q) + KL(q ‖ p)) / 2 = sum over tokens of (p - q)(log p - log q) / 2
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.token_scores import NEVER, impossible_tokens, split_sentences, widen
from attendo.nn.triton_launch import launch, next_power_of_2

# Of the kernels: as for the scores of tokens, but the logits of two passes are in registers at once.
_MAX_VOCAB_BLOCK, _LOGITS_PER_WARP = 4096, 512


def divergence(logits: Float[Tensor, "R L V"], silent: tuple[int, ...] = ()) -> Float[Tensor, "B L"]:
    """Return the divergence between the distributions of row b and row B + b at each position.

    Tokens in `silent` have probability 0. Only the logits are kept for the backward pass, in their own precision:
    float32 probabilities of [2B, L, V] would be the largest tensors of a training step.
    """
    compute = _KernelDivergence if triton_launch.runs_kernels(logits) else _Divergence
    result: Tensor = compute.apply(logits, silent)
    return result


class _Divergence(torch.autograd.Function):
    """Widens a few positions at a time, so that they stay in the processor's cache."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, silent: tuple[int, ...]) -> Tensor:
        impossible = impossible_tokens(logits, silent)
        ctx.save_for_backward(logits, impossible)
        first, second = logits.chunk(2)
        compared = (_compare(first[part], second[part], impossible) for part in split_sentences(first))
        return torch.cat([((p - q) * difference).sum(-1) / 2 for p, q, difference in compared])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, impossible = ctx.saved_tensors
        first, second = logits.chunk(2)
        result = torch.empty_like(logits)
        into_first, into_second = result.chunk(2)
        for part in split_sentences(first):
            p, q, difference = _compare(first[part], second[part], impossible)
            # d KL(p ‖ q) / d logits of p = p (log p - log q - KL(p ‖ q)); d KL(q ‖ p) / d logits of p = p - q.
            half, apart = grad[part, :, None] / 2, p - q
            towards_second = (p * difference).sum(-1, keepdim=True)  # KL(p ‖ q)
            towards_first = -(q * difference).sum(-1, keepdim=True)
            into_first[part] = half * (p * (difference - towards_second) + apart)
            into_second[part] = half * (q * (-difference - towards_first) - apart)
        return result, None


class _KernelDivergence(torch.autograd.Function):
    """The same on a GPU: the logits are read once forward, and once backward, where the gradient is written once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, silent: tuple[int, ...]) -> Tensor:
        from attendo.nn.divergence_triton import divergence_kernel

        logits = logits.contiguous()
        sentences, positions = len(logits) // 2, logits.shape[1]
        divergences = logits.new_empty((sentences, positions), dtype=torch.float32)
        moments = logits.new_empty((sentences, positions, 4), dtype=torch.float32)
        sizes = _kernel_sizes(logits, silent)
        launch(divergence_kernel, (positions, sentences), logits, divergences, moments, sentences, positions, **sizes)
        ctx.save_for_backward(logits, moments)
        ctx.silent = silent
        return divergences

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        from attendo.nn.divergence_triton import divergence_grad_kernel

        logits, moments = ctx.saved_tensors
        sentences, positions = grad.shape
        grad_logits = torch.empty_like(logits)
        launch(
            divergence_grad_kernel,
            (positions, sentences),
            *(logits, moments, grad, grad_logits, sentences, positions, *grad.stride()),
            **_kernel_sizes(logits, ctx.silent),
        )
        return grad_logits, None


def _kernel_sizes(logits: Float[Tensor, "R L V"], silent: tuple[int, ...]) -> dict[str, int | tuple[int, ...]]:
    block = min(_MAX_VOCAB_BLOCK, next_power_of_2(logits.shape[2]))
    return {
        "vocab_size": logits.shape[2],
        "silent": silent,
        "vocab_block": block,
        "num_warps": max(1, block // _LOGITS_PER_WARP),
    }


def _compare(
    first: Float[Tensor, "B L V"], second: Float[Tensor, "B L V"], impossible: Float[Tensor, " V"]
) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L V"], Float[Tensor, "B L V"]]:
    """Return p, q and log p - log q of every token, which is 0 for impossible ones."""
    log_p, log_q = ((widen(each) + impossible).log_softmax(-1) for each in (first, second))
    return log_p.exp(), log_q.exp(), (log_p - log_q).masked_fill(impossible == NEVER, 0)
