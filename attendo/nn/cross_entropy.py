"""Cross-entropy with label smoothing, from logits in any precision."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from attendo.nn import triton_launch
from attendo.nn.triton_launch import launch, next_power_of_2

# Of the kernels: as for the scores of tokens.
_MAX_VOCAB_BLOCK, _LOGITS_PER_WARP = 8192, 1024


def cross_entropy_sum(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], ignored: int, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the sum of the losses in float32. Positions with the label `ignored` have none."""
    if triton_launch.runs_kernels(logits) and not is_compiling():  # a compiler fuses PyTorch's code itself
        losses: Tensor = _KernelCrossEntropy.apply(logits, labels, ignored, label_smoothing)
        return losses.sum()
    return F.cross_entropy(logits, labels, ignore_index=ignored, label_smoothing=label_smoothing, reduction="sum")


class _KernelCrossEntropy(torch.autograd.Function):
    """Reads the logits once forward, and once backward, where the gradient is written once.

    PyTorch writes probabilities in float32, several times as many numbers as all other tensors of a small network.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, ignored: int, label_smoothing: float) -> Tensor:
        from attendo.nn.cross_entropy_triton import cross_entropy_kernel

        logits, labels = logits.contiguous(), labels.contiguous()
        losses = logits.new_empty(len(logits), dtype=torch.float32)
        totals = torch.empty_like(losses)
        sizes = _kernel_sizes(logits, ignored, label_smoothing)
        launch(cross_entropy_kernel, (len(logits),), logits, labels, losses, totals, **sizes)
        ctx.save_for_backward(logits, labels, totals)
        ctx.sizes = sizes
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        from attendo.nn.cross_entropy_triton import cross_entropy_grad_kernel

        logits, labels, totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        given = (logits, labels, totals, grad, grad_logits, *grad.stride())
        launch(cross_entropy_grad_kernel, (len(logits),), *given, **ctx.sizes)
        return grad_logits, None, None, None


def _kernel_sizes(logits: Float[Tensor, "N V"], ignored: int, label_smoothing: float) -> dict[str, int | float]:
    block = min(_MAX_VOCAB_BLOCK, next_power_of_2(logits.shape[1]))
    return {
        "ignored": ignored,
        "smoothing": label_smoothing,
        "vocab_size": logits.shape[1],
        "vocab_block": block,
        "num_warps": max(1, block // _LOGITS_PER_WARP),
    }
