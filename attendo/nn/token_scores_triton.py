"""Triton kernels for the log-probabilities of the target's tokens. `token_scores.py` launches them.

A program computes one position of one sentence. It reads the logits in their own precision and computes in float32.
"""

import triton
import triton.language as tl


@triton.jit
def load_logits(logits, tokens, inside, silent: tl.constexpr):
    """Load the logits of these tokens in float32: -inf for silent ones and outside."""
    found = tl.load(logits + tokens, mask=inside, other=float("-inf")).to(tl.float32)
    for i in tl.static_range(len(silent)):
        found = tl.where(tokens == silent[i], float("-inf"), found)
    return found


@triton.jit
def sum_logits(logits, vocab_size: tl.constexpr, silent: tl.constexpr, vocab_block: tl.constexpr):
    """Return the logarithm of the sum of exp(logit) of one position, and the sum of the logits, which may be unused."""
    top, total, plain = float("-inf"), 0.0, 0.0
    for first in range(0, vocab_size, vocab_block):
        column = first + tl.arange(0, vocab_block)
        here = load_logits(logits, column, column < vocab_size, silent)
        highest = tl.maximum(top, tl.max(here, axis=0))
        level = tl.where(tl.abs(highest) == float("inf"), 0.0, highest)  # inf - inf is NaN
        total = total * tl.exp(top - level) + tl.sum(tl.exp(here - level), axis=0)
        top = highest
        plain += tl.sum(tl.where(column < vocab_size, here, 0.0), axis=0)
    return tl.log(total) + tl.where(tl.abs(top) == float("inf"), 0.0, top), plain


@triton.jit(do_not_specialize=["num_positions", "num_tokens"])  # they differ between batches
def score_kernel(
    logits,  # [B, L, V]
    ids,  # [B, T]
    scores,  # [B, L, T], the output
    totals,  # [B, L], the log of the sum over the vocabulary, for the gradient
    num_positions,
    num_tokens,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,  # ids without probability
    vocab_block: tl.constexpr,  # tokens of the vocabulary at a time
    token_block: tl.constexpr,  # tokens of the target at a time
):
    sentence = tl.program_id(1).to(tl.int64)  # 64 bits: B * L * V may exceed 32
    row = sentence * num_positions + tl.program_id(0)
    logits += row * vocab_size
    log_total, _ = sum_logits(logits, vocab_size, silent, vocab_block)
    tl.store(totals + row, log_total)
    for first in range(0, num_tokens, token_block):
        token = first + tl.arange(0, token_block)
        inside = token < num_tokens
        column = tl.load(ids + sentence * num_tokens + token, mask=inside, other=0)
        found = tl.load(logits + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(scores + row * num_tokens + token, found - log_total, mask=inside)


@triton.jit(do_not_specialize=["num_positions", "num_tokens", "grad_sentence", "grad_position", "grad_token"])
def grad_kernel(
    logits,  # [B, L, V]
    ids,  # [B, T]
    totals,  # [B, L]
    grad,  # [B, L, T], of the scores
    grad_logits,  # [B, L, V], the output
    num_positions,
    num_tokens,
    grad_sentence,  # strides
    grad_position,
    grad_token,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,
    vocab_block: tl.constexpr,
    token_block: tl.constexpr,
):
    sentence, position = tl.program_id(1).to(tl.int64), tl.program_id(0)
    row = sentence * num_positions + position
    logits, grad_logits = logits + row * vocab_size, grad_logits + row * vocab_size
    ids, grad = ids + sentence * num_tokens, grad + sentence * grad_sentence + position * grad_position
    log_total, received = tl.load(totals + row), 0.0
    for first in range(0, num_tokens, token_block):
        token = first + tl.arange(0, token_block)
        received += tl.sum(tl.load(grad + token * grad_token, mask=token < num_tokens, other=0.0), axis=0)
    for first in range(0, vocab_size, vocab_block):
        column = first + tl.arange(0, vocab_block)
        share = tl.exp(load_logits(logits, column, column < vocab_size, silent) - log_total)
        tl.store(grad_logits + column, -received * share, mask=column < vocab_size)
    tl.debug_barrier()  # the threads below overwrite numbers that other threads have stored above
    for first in range(0, num_tokens, token_block):
        token = first + tl.arange(0, token_block)
        inside = token < num_tokens
        column = tl.load(ids + token, mask=inside, other=0)
        own = tl.zeros([token_block], tl.float32)  # sum over the equal tokens: all of them store the same number
        for other_first in range(0, num_tokens, token_block):
            other = other_first + tl.arange(0, token_block)
            other_column = tl.load(ids + other, mask=other < num_tokens, other=0)
            other_grad = tl.load(grad + other * grad_token, mask=other < num_tokens, other=0.0)
            own += tl.sum(tl.where(column[:, None] == other_column[None, :], other_grad[None, :], 0.0), axis=1)
        share = tl.exp(load_logits(logits, column, inside, silent) - log_total)
        tl.store(grad_logits + column, own - received * share, mask=inside)
