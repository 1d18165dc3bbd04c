"""Log-probabilities of the target's tokens at every position of a canvas, from the logits.

B batch, T target tokens without EOS, L positions.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.triton_launch import launch, next_power_of_2

NEVER = float("-inf")  # the log-probability of what is impossible
_CHUNK_NUMBERS = 1 << 23  # logits widened at once without a kernel: 32 MB in float32
# Of the kernels: logits read at a time, 32 per thread of 8 warps. A vocabulary of 8,000 is read in one piece, and a
# processor has registers for several programs, so that enough reads are under way.
_MAX_VOCAB_BLOCK, _LOGITS_PER_WARP = 8192, 1024
_MAX_TOKEN_BLOCK = 32  # tokens of the target at a time: their ids are compared with each other, 32 x 32


def emission_scores(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], silent: tuple[int, ...]
) -> Float[Tensor, "B L T"]:
    """Return the log-probabilities of these tokens at every position. Tokens in `silent` have probability 0.

    They may be in `ids` only as padding, whose log-probabilities mean nothing.
    """
    scores = _KernelEmissionScores if triton_launch.runs_kernels(logits) else _EmissionScores
    result: Tensor = scores.apply(logits, ids, silent)
    return result


class _EmissionScores(torch.autograd.Function):
    """Keeps the logits in their own precision and one sum per position, instead of float32 probabilities.

    A canvas has several times as many positions as the target has tokens, so [B, L, V] in float32 would be the largest
    tensor of a training step. A few sentences at a time are widened, so that they stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, silent: tuple[int, ...]) -> Tensor:
        impossible = impossible_tokens(logits, silent)
        totals = torch.cat(
            [(widen(logits[part]) + impossible).logsumexp(-1, keepdim=True) for part in split_sentences(logits)]
        )
        ctx.save_for_backward(logits, ids, impossible, totals)
        return widen(logits.gather(2, ids[:, None].expand(-1, logits.shape[1], -1))) - totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, impossible, totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        for part in split_sentences(logits):
            wide = (widen(logits[part]) + (impossible - totals[part])).exp_()
            wide *= -grad[part].sum(-1, keepdim=True)
            wide.scatter_add_(2, ids[part, None].expand(-1, logits.shape[1], -1), grad[part])
            grad_logits[part] = wide
        return grad_logits, None, None


class _KernelEmissionScores(torch.autograd.Function):
    """The same on a GPU: the logits are read once forward, and once backward, where the gradient is written once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, silent: tuple[int, ...]) -> Tensor:
        from attendo.nn.token_scores_triton import score_kernel

        logits, ids = logits.contiguous(), ids.contiguous()
        batch, positions, _ = logits.shape
        scores = logits.new_empty((batch, positions, ids.shape[1]), dtype=torch.float32)
        totals = logits.new_empty((batch, positions), dtype=torch.float32)
        sizes = _kernel_sizes(logits, ids, silent)
        launch(score_kernel, (positions, batch), logits, ids, scores, totals, positions, ids.shape[1], **sizes)
        ctx.save_for_backward(logits, ids, totals)
        ctx.silent = silent
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        from attendo.nn.token_scores_triton import grad_kernel

        logits, ids, totals = ctx.saved_tensors
        batch, positions, _ = logits.shape
        grad_logits = torch.empty_like(logits)
        sizes = _kernel_sizes(logits, ids, ctx.silent)
        launch(
            grad_kernel,
            (positions, batch),
            *(logits, ids, totals, grad, grad_logits, positions, ids.shape[1], *grad.stride()),
            **sizes,
        )
        return grad_logits, None, None


def _kernel_sizes(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], silent: tuple[int, ...]
) -> dict[str, int | tuple[int, ...]]:
    block = min(_MAX_VOCAB_BLOCK, next_power_of_2(logits.shape[2]))
    return {
        "vocab_size": logits.shape[2],
        "silent": silent,
        "vocab_block": block,
        "token_block": min(_MAX_TOKEN_BLOCK, next_power_of_2(ids.shape[1])),
        "num_warps": max(1, block // _LOGITS_PER_WARP),
    }


def split_sentences(logits: Float[Tensor, "B L V"]) -> list[slice]:
    """Return slices of sentences, of a limited size; one slice if there are no sentences."""
    size = max(1, _CHUNK_NUMBERS // max(1, logits[0].numel())) if len(logits) else 1
    return [slice(start, start + size) for start in range(0, max(1, len(logits)), size)]


def impossible_tokens(logits: Float[Tensor, "B L V"], silent: tuple[int, ...]) -> Float[Tensor, " V"]:
    """Return -inf for the tokens in `silent`, 0 for the others."""
    impossible = widen(logits.new_zeros(logits.shape[-1]))
    for token in silent:
        impossible[token : token + 1].fill_(NEVER)  # a slice: a single number would be copied from the host
    return impossible


def widen(scores: Tensor) -> Tensor:
    return scores if scores.dtype == torch.float64 else scores.float()
