"""Triton kernels for the cross-entropy with label smoothing. `cross_entropy.py` launches them.

A program computes one position. It reads the logits in their own precision and computes in float32.
"""

import triton
import triton.language as tl

from attendo.nn.token_scores_triton import sum_logits


@triton.jit
def cross_entropy_kernel(
    logits,  # [N, V]
    labels,  # [N]
    losses,  # [N], the output
    totals,  # [N], the log of the sum over the vocabulary, for the gradient
    ignored: tl.constexpr,  # label without a loss
    smoothing: tl.constexpr,
    vocab_size: tl.constexpr,
    vocab_block: tl.constexpr,  # tokens at a time
):
    row = tl.program_id(0).to(tl.int64)  # 64 bits: N * V may exceed 32
    label = tl.load(labels + row)
    logits += row * vocab_size
    if label == ignored:
        tl.store(losses + row, 0.0)
    else:
        log_total, sum_of_logits = sum_logits(logits, vocab_size, (), vocab_block)
        known = (label >= 0) & (label < vocab_size)  # PyTorch's kernel stops the program for other labels
        wanted = tl.load(logits + label, mask=known, other=float("nan")).to(tl.float32)
        loss = log_total - (1 - smoothing) * wanted
        if smoothing > 0:  # 0 times -inf is NaN
            loss -= smoothing / vocab_size * sum_of_logits
        tl.store(losses + row, loss)
        tl.store(totals + row, log_total)


@triton.jit
def cross_entropy_grad_kernel(
    logits,  # [N, V]
    labels,  # [N]
    totals,  # [N]
    grad,  # [N], of the losses
    grad_logits,  # [N, V], the output
    grad_stride,
    ignored: tl.constexpr,
    smoothing: tl.constexpr,
    vocab_size: tl.constexpr,
    vocab_block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    logits, grad_logits = logits + row * vocab_size, grad_logits + row * vocab_size
    received, log_total = tl.load(grad + row * grad_stride), tl.load(totals + row)
    for begin in range(0, vocab_size, vocab_block):
        tokens = begin + tl.arange(0, vocab_block)
        inside = tokens < vocab_size
        here = tl.load(logits + tokens, mask=inside, other=0.0).to(tl.float32)
        wanted = tl.where(tokens == label, 1 - smoothing, 0.0) + smoothing / vocab_size
        change = tl.where(label == ignored, 0.0, received * (tl.exp(here - log_total) - wanted))
        tl.store(grad_logits + tokens, change, mask=inside)
