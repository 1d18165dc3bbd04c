"""Triton kernels for the divergence of a graph's next tokens. `graph_next_tokens.py` launches them.

A program has one sentence and a block of the vocabulary at a time. It computes the probabilities at every vertex (said)
and those of the next token after every prefix (mixed), which are a product of `said` and the probabilities of the
vertices. Neither is stored, because they would be the largest tensors of a training step.
"""

import triton
import triton.language as tl

from attendo.nn.token_scores_triton import sum_logits

_TINY = tl.constexpr(1.1754943508222875e-38)  # the smallest normal float32: log 0 is not finite


@triton.jit
def _mix(
    logits, totals, reached, ends, tokens, num_steps, num_vertices,
    vocab_size: tl.constexpr, silent: tl.constexpr, eos: tl.constexpr, steps: tl.constexpr, size: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Return the probabilities of the vertices, `said` and `mixed`, of one sentence in one pass."""
    step, vertex = tl.arange(0, steps), tl.arange(0, size)
    is_vertex = vertex < num_vertices
    inside = is_vertex[:, None] & (tokens < vocab_size)[None, :]
    scores = tl.load(logits + vertex[:, None] * vocab_size + tokens[None, :], mask=inside, other=float("-inf"))
    scores = scores.to(tl.float32)
    for i in tl.static_range(len(silent)):
        scores = tl.where((tokens == silent[i])[None, :], float("-inf"), scores)
    said = tl.exp(scores - tl.load(totals + vertex, mask=is_vertex, other=0.0)[:, None])
    known = (step < num_steps)[:, None] & is_vertex[None, :]
    weights = tl.load(reached + step[:, None] * num_vertices + vertex[None, :], mask=known, other=0.0)
    mixed = tl.dot(weights, said, input_precision=precision)
    end = tl.load(ends + step, mask=step < num_steps, other=0.0)
    return weights, said, tl.where((tokens == eos)[None, :], end[:, None], mixed)


@triton.jit
def _mix_row(
    row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
    vocab_size: tl.constexpr, silent: tl.constexpr, eos: tl.constexpr, steps: tl.constexpr, size: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    first = row * num_vertices  # 64 bits: 2B * L * V may exceed 32
    return _mix(
        logits + first * vocab_size, totals + first, reached + first * num_steps, ends + row * num_steps,
        tokens, num_steps, num_vertices, vocab_size, silent, eos, steps, size, precision,
    )  # fmt: skip


@triton.jit
def _log_ratio(p, q):
    return tl.log(tl.maximum(p, _TINY)) - tl.log(tl.maximum(q, _TINY))


@triton.jit
def _grad_mixed(grad, own, other, num_steps, steps: tl.constexpr):
    """The gradient of the divergence for one pass: (log own - log other + 1 - other / own) / 2."""
    step = tl.arange(0, steps)
    half = tl.load(grad + step, mask=step < num_steps, other=0.0) / 2
    ratio = tl.where(own == 0, 1.0, other / tl.maximum(own, _TINY))
    return half[:, None] * (_log_ratio(own, other) + 1 - ratio)


@triton.jit(do_not_specialize=["num_vertices"])
def total_kernel(
    logits,  # [2B, L, V]
    totals,  # [2B, L], the output: the log of the sum over the vocabulary
    num_vertices,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,  # ids without probability
    vocab_block: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64) * num_vertices + tl.program_id(0)
    total, _ = sum_logits(logits + row * vocab_size, vocab_size, silent, vocab_block)
    tl.store(totals + row, total)


@triton.jit(do_not_specialize=["num_sentences", "num_steps", "num_vertices"])  # they differ between batches
def next_token_kernel(
    logits,  # [2B, L, V]
    totals,  # [2B, L]
    reached,  # [2B, N, L]
    ends,  # [2B, N]
    divergences,  # [B, blocks, N], the output: to be summed over the blocks of the vocabulary
    num_sentences,
    num_steps,
    num_vertices,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,
    eos: tl.constexpr,
    steps: tl.constexpr,  # powers of 2
    size: tl.constexpr,
    vocab_block: tl.constexpr,
    precision: tl.constexpr,
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tokens = block * vocab_block + tl.arange(0, vocab_block)
    _, _, p = _mix_row(
        row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
        vocab_size, silent, eos, steps, size, precision,
    )  # fmt: skip
    _, _, q = _mix_row(
        row + num_sentences, logits, totals, reached, ends, tokens, num_steps, num_vertices,
        vocab_size, silent, eos, steps, size, precision,
    )  # fmt: skip
    step = tl.arange(0, steps)
    found = tl.sum((p - q) * _log_ratio(p, q), axis=1) / 2
    place = (row * tl.num_programs(0) + block) * num_steps + step
    tl.store(divergences + place, found, mask=step < num_steps)


@triton.jit(do_not_specialize=["num_sentences", "num_steps", "num_vertices"])
def weight_grad_kernel(
    logits,
    totals,
    reached,
    ends,
    grad,  # [B, N], of the divergences
    grad_reached,  # [2B, parts, N, L], output, as the next two: to be summed over the parts of the vocabulary
    grad_ends,  # [2B, parts, N]
    shares,  # [2B, parts, L]: sum over the vocabulary of P · gradient for P
    num_sentences,
    num_steps,
    num_vertices,
    blocks_per_part,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,
    eos: tl.constexpr,
    steps: tl.constexpr,
    size: tl.constexpr,
    vocab_block: tl.constexpr,
    precision: tl.constexpr,
):
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    sentence, other_row = row % num_sentences, (row + num_sentences) % (2 * num_sentences)
    into_reached = tl.zeros([steps, size], tl.float32)
    into_ends, share = tl.zeros([steps], tl.float32), tl.zeros([size], tl.float32)
    for number in range(blocks_per_part):
        tokens = (part * blocks_per_part + number) * vocab_block + tl.arange(0, vocab_block)
        weights, said, own = _mix_row(
            row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
            vocab_size, silent, eos, steps, size, precision,
        )  # fmt: skip
        _, _, other = _mix_row(
            other_row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
            vocab_size, silent, eos, steps, size, precision,
        )  # fmt: skip
        into_mixed = _grad_mixed(grad + sentence * num_steps, own, other, num_steps, steps)
        into_reached += tl.dot(into_mixed, tl.trans(said), input_precision=precision)
        into_said = tl.dot(tl.trans(weights), into_mixed, input_precision=precision)
        share += tl.sum(into_said * said, axis=1)
        into_ends += tl.sum(tl.where((tokens == eos)[None, :], into_mixed, 0.0), axis=1)
    step, vertex = tl.arange(0, steps), tl.arange(0, size)
    is_step, is_vertex = step < num_steps, vertex < num_vertices
    place = row * tl.num_programs(0) + part
    tl.store(grad_ends + place * num_steps + step, into_ends, mask=is_step)
    tl.store(shares + place * num_vertices + vertex, share, mask=is_vertex)
    known = is_step[:, None] & is_vertex[None, :]
    grad_reached += place * num_steps * num_vertices
    tl.store(grad_reached + step[:, None] * num_vertices + vertex[None, :], into_reached, mask=known)


@triton.jit(do_not_specialize=["num_sentences", "num_steps", "num_vertices"])
def logit_grad_kernel(
    logits,
    totals,
    reached,
    ends,
    grad,  # [B, N]
    shares,  # [2B, L]
    grad_logits,  # [2B, L, V], the output
    num_sentences,
    num_steps,
    num_vertices,
    vocab_size: tl.constexpr,
    silent: tl.constexpr,
    eos: tl.constexpr,
    steps: tl.constexpr,
    size: tl.constexpr,
    vocab_block: tl.constexpr,
    precision: tl.constexpr,
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    sentence, other_row = row % num_sentences, (row + num_sentences) % (2 * num_sentences)
    tokens = block * vocab_block + tl.arange(0, vocab_block)
    weights, said, own = _mix_row(
        row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
        vocab_size, silent, eos, steps, size, precision,
    )  # fmt: skip
    _, _, other = _mix_row(
        other_row, logits, totals, reached, ends, tokens, num_steps, num_vertices,
        vocab_size, silent, eos, steps, size, precision,
    )  # fmt: skip
    into_mixed = _grad_mixed(grad + sentence * num_steps, own, other, num_steps, steps)
    into_said = tl.dot(tl.trans(weights), into_mixed, input_precision=precision)
    vertex = tl.arange(0, size)
    is_vertex = vertex < num_vertices
    share = tl.load(shares + row * num_vertices + vertex, mask=is_vertex, other=0.0)
    inside = is_vertex[:, None] & (tokens < vocab_size)[None, :]
    place = (row * num_vertices + vertex)[:, None] * vocab_size + tokens[None, :]
    tl.store(grad_logits + place, said * (into_said - share[:, None]), mask=inside)
