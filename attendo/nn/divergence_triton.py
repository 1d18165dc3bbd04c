"""Triton kernels for the divergence between two passes. `divergence.py` launches them.

A program computes one position of one sentence. It reads the logits x and y of both passes in their own precision and
computes in float32. With d = x - y, the divergence is (E_p[d] - E_q[d]) / 2: the normalisers of p and q cancel.
"""

import triton
import triton.language as tl

from attendo.nn.token_scores_triton import load_logits


@triton.jit
def _add(logits, difference, top, total, weighted):
    """Add tokens to the sum of exp(logit - top), and to the same sum weighted by the difference."""
    highest = tl.maximum(top, tl.max(logits, axis=0))
    level = tl.where(highest == float("-inf"), 0.0, highest)  # inf - inf is NaN
    shrunk, weights = tl.exp(top - level), tl.exp(logits - level)
    total = total * shrunk + tl.sum(weights, axis=0)
    weighted = weighted * shrunk + tl.sum(weights * difference, axis=0)
    return highest, total, weighted


@triton.jit(do_not_specialize=["num_sentences", "num_positions"])  # they differ between batches
def divergence_kernel(
    logits,  # [2B, L, V]
    divergences,  # [B, L], the output
    moments,  # [B, L, 4], for the gradient: log normalisers of p and q, E_p[d], E_q[d]
    num_sentences,
    num_positions,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,  # ids without probability
    vocab_block: tl.constexpr,  # tokens at a time
):
    sentence = tl.program_id(1).to(tl.int64)  # 64 bits: B * L * V may exceed 32
    row = sentence * num_positions + tl.program_id(0)
    first = logits + row * vocab_size
    second = first + num_sentences.to(tl.int64) * num_positions * vocab_size
    top_p, total_p, sum_p = float("-inf"), 0.0, 0.0
    top_q, total_q, sum_q = float("-inf"), 0.0, 0.0
    for begin in range(0, vocab_size, vocab_block):
        tokens = begin + tl.arange(0, vocab_block)
        x = load_logits(first, tokens, tokens < vocab_size, silent)
        y = load_logits(second, tokens, tokens < vocab_size, silent)
        d = tl.where((x == float("-inf")) & (y == float("-inf")), 0.0, x - y)
        top_p, total_p, sum_p = _add(x, d, top_p, total_p, sum_p)
        top_q, total_q, sum_q = _add(y, d, top_q, total_q, sum_q)
    mean_p, mean_q = sum_p / total_p, sum_q / total_q
    tl.store(divergences + row, (mean_p - mean_q) / 2)
    moments += row * 4
    tl.store(moments, tl.log(total_p) + top_p)
    tl.store(moments + 1, tl.log(total_q) + top_q)
    tl.store(moments + 2, mean_p)
    tl.store(moments + 3, mean_q)


@triton.jit(do_not_specialize=["num_sentences", "num_positions", "grad_sentence", "grad_position"])
def divergence_grad_kernel(
    logits,  # [2B, L, V]
    moments,  # [B, L, 4]
    grad,  # [B, L], of the divergences
    grad_logits,  # [2B, L, V], the output
    num_sentences,
    num_positions,
    grad_sentence,  # strides
    grad_position,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,
    vocab_block: tl.constexpr,
):
    sentence, position = tl.program_id(1).to(tl.int64), tl.program_id(0)
    row = sentence * num_positions + position
    apart = num_sentences.to(tl.int64) * num_positions * vocab_size  # numbers between both passes
    logits, grad_logits = logits + row * vocab_size, grad_logits + row * vocab_size
    half = tl.load(grad + sentence * grad_sentence + position * grad_position) / 2
    moments += row * 4
    log_p, log_q = tl.load(moments), tl.load(moments + 1)
    mean_p, mean_q = tl.load(moments + 2), tl.load(moments + 3)
    for begin in range(0, vocab_size, vocab_block):
        tokens = begin + tl.arange(0, vocab_block)
        inside = tokens < vocab_size
        x = load_logits(logits, tokens, inside, silent)
        y = load_logits(logits + apart, tokens, inside, silent)
        d = tl.where((x == float("-inf")) & (y == float("-inf")), 0.0, x - y)
        p, q = tl.exp(x - log_p), tl.exp(y - log_q)
        tl.store(grad_logits + tokens, half * (p * (d - mean_p) + p - q), mask=inside)
        tl.store(grad_logits + apart + tokens, half * (q * (mean_q - d) + q - p), mask=inside)
