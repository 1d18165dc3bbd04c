"""Triton kernels for the sum over the rows of CTC and for the best row. `ctc.py` launches them.

A program computes one sentence. The states stay in registers from position to position, in two vectors: element i is
the blank before token i, or token i. The blank after the last of T tokens is element T.
"""

import triton
import triton.language as tl


@triton.jit
def _add_logs(first, second):
    """Return log(exp(first) + exp(second))."""
    top = tl.maximum(first, second)
    level = tl.where(top == float("-inf"), 0.0, top)  # -inf - -inf is NaN
    return tl.log(tl.exp(first - level) + tl.exp(second - level)) + level


@triton.jit
def _earlier(scores, size: tl.constexpr):
    """Return the element before each one, -inf before the first."""
    i = tl.arange(0, size)
    return tl.where(i > 0, tl.gather(scores, tl.maximum(i - 1, 0), 0), float("-inf"))


@triton.jit
def _later(scores, size: tl.constexpr):
    """Return the element after each one, -inf after the last."""
    i = tl.arange(0, size)
    return tl.where(i < size - 1, tl.gather(scores, tl.minimum(i + 1, size - 1), 0), float("-inf"))


@triton.jit
def _may_skip(labels, tokens, size: tl.constexpr):
    """True for tokens that differ from the token before: the blank between them may be left out."""
    i = tl.arange(0, size)
    inside = (i > 0) & (i < tokens)
    return inside & (tl.load(labels + i, mask=inside, other=0) != tl.load(labels + i - 1, mask=inside, other=0))


@triton.jit
def _first_scores(blank, said, size: tl.constexpr):
    """Return the scores of the blanks and of the tokens at position 0."""
    first = tl.arange(0, size) == 0
    return tl.where(first, blank, float("-inf")), tl.where(first, said, float("-inf"))


@triton.jit(
    do_not_specialize=[
        *("max_positions", "max_tokens", "blank_sentence", "blank_position"),
        *("emission_sentence", "emission_position", "emission_token"),
    ]
)
def sum_kernel(
    blanks,  # [B, L]
    emissions,  # [B, L, T]
    labels,  # [B, T]
    num_positions,  # [B]
    num_tokens,  # [B]
    scores,  # [B, L, 2, T + 1], an output: the sum over the rows up to each position, for blanks and for tokens
    totals,  # [B], an output
    max_positions,  # L
    max_tokens,  # T
    blank_sentence,  # strides
    blank_position,
    emission_sentence,
    emission_position,
    emission_token,
    size: tl.constexpr,  # a power of 2, more than T
):
    sentence, width = tl.program_id(0).to(tl.int64), max_tokens + 1
    positions, tokens = tl.load(num_positions + sentence), tl.load(num_tokens + sentence)
    blanks, emissions = blanks + sentence * blank_sentence, emissions + sentence * emission_sentence
    scores += sentence * max_positions * 2 * width
    i = tl.arange(0, size)
    may_skip = _may_skip(labels + sentence * max_tokens, tokens, size)
    said = tl.load(emissions + i * emission_token, mask=i < tokens, other=float("-inf"))
    blank, token = _first_scores(tl.load(blanks), said, size)
    tl.store(scores + i, blank, mask=i < width)
    tl.store(scores + width + i, token, mask=i < width)
    for j in range(1, positions):
        before = _earlier(token, size)
        said = tl.load(emissions + j * emission_position + i * emission_token, mask=i < tokens, other=float("-inf"))
        stepped = _add_logs(blank, tl.where(may_skip, before, float("-inf")))
        blank = _add_logs(blank, before) + tl.load(blanks + j * blank_position)
        token = _add_logs(token, stepped) + said
        tl.store(scores + 2 * j * width + i, blank, mask=i < width)
        tl.store(scores + (2 * j + 1) * width + i, token, mask=i < width)
    blank = tl.where(i == tokens, blank, float("-inf"))
    token = tl.where(i == tokens - 1, token, float("-inf"))
    ends = _add_logs(blank, token)
    top = tl.max(ends, axis=0)
    level = tl.where(top == float("-inf"), 0.0, top)
    tl.store(totals + sentence, tl.log(tl.sum(tl.exp(ends - level), axis=0)) + level)


@triton.jit(
    do_not_specialize=[
        *("max_positions", "max_tokens", "blank_sentence", "blank_position"),
        *("emission_sentence", "emission_position", "emission_token"),
    ]
)
def posterior_kernel(
    blanks,  # [B, L]
    emissions,  # [B, L, T]
    labels,  # [B, T]
    num_positions,  # [B]
    num_tokens,  # [B]
    scores,  # [B, L, 2, T + 1]
    totals,  # [B]
    grad_totals,  # [B]
    grad_blanks,  # [B, L], an output that is 0
    grad_emissions,  # [B, L, T], an output that is 0
    max_positions,
    max_tokens,
    blank_sentence,
    blank_position,
    emission_sentence,
    emission_position,
    emission_token,
    size: tl.constexpr,
):
    sentence, width = tl.program_id(0).to(tl.int64), max_tokens + 1
    positions, tokens = tl.load(num_positions + sentence), tl.load(num_tokens + sentence)
    total, scale = tl.load(totals + sentence), tl.load(grad_totals + sentence)
    blanks, emissions = blanks + sentence * blank_sentence, emissions + sentence * emission_sentence
    scores, grad_blanks = scores + sentence * max_positions * 2 * width, grad_blanks + sentence * max_positions
    grad_emissions += sentence * max_positions * max_tokens
    i = tl.arange(0, size)
    may_skip = _may_skip(labels + sentence * max_tokens, tokens, size)
    blank = tl.where(i == tokens, 0.0, float("-inf"))
    token = tl.where(i == tokens - 1, 0.0, float("-inf"))
    for step in range(tl.where(total > float("-inf"), positions, 0)):
        j = positions - 1 - step
        row = scores + 2 * j * width + i
        blank_share = tl.exp(tl.load(row, mask=i < width, other=float("-inf")) + blank - total)
        token_share = tl.exp(tl.load(row + width, mask=i < width, other=float("-inf")) + token - total)
        tl.store(grad_blanks + j, tl.sum(blank_share, axis=0) * scale)
        tl.store(grad_emissions + j * max_tokens + i, token_share * scale, mask=i < max_tokens)
        said = tl.load(emissions + j * emission_position + i * emission_token, mask=i < tokens, other=float("-inf"))
        blank, token = blank + tl.load(blanks + j * blank_position), token + said
        after = _later(_add_logs(blank, tl.where(may_skip, token, float("-inf"))), size)
        blank, token = _add_logs(blank, token), _add_logs(token, after)


@triton.jit(
    do_not_specialize=[
        *("max_positions", "max_tokens", "blank_sentence", "blank_position"),
        *("emission_sentence", "emission_position", "emission_token"),
    ]
)
def align_kernel(
    blanks,  # [B, L]
    emissions,  # [B, L, T]
    labels,  # [B, T]
    num_positions,  # [B]
    num_tokens,  # [B]
    best_steps,  # [B, L, 2 * (T + 1)], a buffer: 0, 1 or 2 states back, for blank, token, blank, ...
    row,  # [B, L], an output that is 0
    max_positions,
    max_tokens,
    blank_sentence,
    blank_position,
    emission_sentence,
    emission_position,
    emission_token,
    size: tl.constexpr,
):
    sentence, width = tl.program_id(0).to(tl.int64), max_tokens + 1
    positions, tokens = tl.load(num_positions + sentence), tl.load(num_tokens + sentence)
    blanks, emissions = blanks + sentence * blank_sentence, emissions + sentence * emission_sentence
    best_steps, row = best_steps + sentence * max_positions * 2 * width, row + sentence * max_positions
    i = tl.arange(0, size)
    may_skip = _may_skip(labels + sentence * max_tokens, tokens, size)
    said = tl.load(emissions + i * emission_token, mask=i < tokens, other=float("-inf"))
    blank, token = _first_scores(tl.load(blanks), said, size)
    for j in range(1, positions):
        before = _earlier(token, size)
        jumped = tl.where(may_skip, before, float("-inf"))
        best = tl.maximum(token, blank)
        token_steps = tl.where(jumped > best, 2, tl.where(blank > token, 1, 0))
        blank_steps = tl.where(before > blank, 1, 0)
        said = tl.load(emissions + j * emission_position + i * emission_token, mask=i < tokens, other=float("-inf"))
        token = tl.maximum(best, jumped) + said
        blank = tl.maximum(blank, before) + tl.load(blanks + j * blank_position)
        tl.store(best_steps + 2 * (j * width + i), blank_steps, mask=i < width)
        tl.store(best_steps + 2 * (j * width + i) + 1, token_steps, mask=i < width)
    last_blank = tl.max(tl.where(i == tokens, blank, float("-inf")), axis=0)
    last_token = tl.max(tl.where(i == tokens - 1, token, float("-inf")), axis=0)
    state = tl.where(last_token >= last_blank, 2 * tokens - 1, 2 * tokens)
    state = tl.where(tl.maximum(last_token, last_blank) == float("-inf"), 0, state)  # does not fit
    tl.debug_barrier()  # every thread reads what other threads have stored
    for step in range(positions):
        j = positions - 1 - step
        tl.store(row + j, tl.where(state % 2 == 1, (state + 1) // 2, 0))
        state -= tl.load(best_steps + 2 * j * width + state, mask=j > 0, other=0)
