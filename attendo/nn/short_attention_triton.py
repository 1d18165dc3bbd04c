"""Triton kernels for attention over short sequences, with gradients. `short_attention.py` launches them.

A program computes one head of one sentence. All its queries, keys and values are read once and stay on the processor.
Products have the precision of the inputs, sums and the softmax have float32. No two programs write the same number.
"""

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_ROUNDS = tl.constexpr(7)  # of Philox: enough to pass BigCrush (Salmon et al. 2011)
# Numbers that differ between batches. The strides of queries, keys and values are multiples of 16 in all batches.
_SIZES = ["num_queries", "num_keys", "mask_sentence", "mask_query"]


@triton.jit
def locate_rows(sentence_stride, head_stride, row_stride, num_heads: tl.constexpr, row_block: tl.constexpr):
    """Return the offsets of the rows of this program's sentence and head, in 64 bits."""
    program = tl.program_id(0)
    sentence, head = (program // num_heads).to(tl.int64), (program % num_heads).to(tl.int64)
    row = tl.arange(0, row_block).to(tl.int64)
    return (sentence * sentence_stride + head * head_stride + row * row_stride)[:, None]


@triton.jit
def select_inside(num_rows, width: tl.constexpr, row_block: tl.constexpr, width_block: tl.constexpr):
    """Return which numbers of a block are inside the rows and the width."""
    return (tl.arange(0, row_block) < num_rows)[:, None] & (tl.arange(0, width_block) < width)[None, :]


@triton.jit
def load_rows(start, offsets, num_rows, width: tl.constexpr, row_block: tl.constexpr, width_block: tl.constexpr):
    """Load rows of this width, and zeros outside."""
    inside = select_inside(num_rows, width, row_block, width_block)
    return tl.load(start + offsets + tl.arange(0, width_block)[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(
    start, offsets, numbers, num_rows, width: tl.constexpr, row_block: tl.constexpr, width_block: tl.constexpr
):
    inside = select_inside(num_rows, width, row_block, width_block)
    numbers = numbers.to(start.dtype.element_ty)
    tl.store(start + offsets + tl.arange(0, width_block)[None, :], numbers, mask=inside)


@triton.jit
def select_visible(
    visible,
    mask_sentence,
    mask_query,
    num_queries,
    num_keys,
    num_heads: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
):
    """Return which keys each query may attend to: none outside."""
    query, key = tl.arange(0, query_block), tl.arange(0, key_block)
    shown = (query < num_queries)[:, None] & (key < num_keys)[None, :]
    if mask_kind != "none":
        visible += (tl.program_id(0) // num_heads).to(tl.int64) * mask_sentence
    if mask_kind == "keys":
        shown = shown & (tl.load(visible + key, mask=key < num_keys, other=0) != 0)[None, :]
    if mask_kind == "matrix":
        at = query[:, None] * mask_query + key[None, :]
        shown = tl.load(visible + at, mask=shown, other=0) != 0
    if causal:
        shown = shown & (key[None, :] <= query[:, None])
    return shown


@triton.jit
def compute_weights(q, k, shown, scale: tl.constexpr):
    """Return softmax(Q Kᵀ · scale) over the visible keys, and zeros if there are none."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * _LOG2_E)
    scores = tl.where(shown, scores, float("-inf"))
    top = tl.max(scores, axis=1)
    weights = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])  # -inf minus -inf is NaN
    total = tl.sum(weights, axis=1)
    return weights * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]


@triton.jit
def draw_kept(seed, dropout, query_block: tl.constexpr, key_block: tl.constexpr):
    """Return which weights are kept. The counter of Philox is the weight and the program: no number is used twice.

    One call could give the numbers of four keys. But Triton 3.6 multiplies 16-bit weights wrongly on an H200 if the
    numbers of four calls are joined and reshaped.
    """
    counter = tl.arange(0, query_block)[:, None] * key_block + tl.arange(0, key_block)[None, :]
    zero = counter * 0
    bits, _, _, _ = tl.philox(tl.load(seed), counter, zero + tl.program_id(0), zero, zero, n_rounds=_ROUNDS)
    return tl.uint_to_uniform_float(bits) >= dropout


@triton.jit(do_not_specialize=_SIZES)
def attend_kernel(
    queries,  # [B, H, T, d_key], with any strides but 1 for the last axis
    keys,  # [B, H, S, d_key]
    values,  # [B, H, S, d_value]
    visible,  # [B, 1, T, S] False for masked keys, if `mask_kind` is not "none"
    seed,  # [1] of the random numbers, if `drops`
    mixed,  # [B, H, T, d_value], the output
    num_queries,
    num_keys,
    dropout,  # the share of weights that are dropped
    mask_sentence,  # strides
    mask_query,
    query_sentence,
    query_head,
    query_row,
    key_sentence,
    key_head,
    key_row,
    value_sentence,
    value_head,
    value_row,
    mixed_sentence,
    mixed_head,
    mixed_row,
    scale: tl.constexpr,
    num_heads: tl.constexpr,
    d_key: tl.constexpr,
    d_value: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,  # "none", "keys" for a mask that is the same for all queries, or "matrix"
    drops: tl.constexpr,
    query_block: tl.constexpr,  # powers of 2
    key_block: tl.constexpr,
    d_key_block: tl.constexpr,
    d_value_block: tl.constexpr,
):
    at_queries = locate_rows(query_sentence, query_head, query_row, num_heads, query_block)
    at_keys = locate_rows(key_sentence, key_head, key_row, num_heads, key_block)
    at_values = locate_rows(value_sentence, value_head, value_row, num_heads, key_block)
    q = load_rows(queries, at_queries, num_queries, d_key, query_block, d_key_block)
    k = load_rows(keys, at_keys, num_keys, d_key, key_block, d_key_block)
    v = load_rows(values, at_values, num_keys, d_value, key_block, d_value_block)
    shown = select_visible(
        visible, mask_sentence, mask_query, num_queries, num_keys, num_heads, causal, mask_kind, query_block, key_block
    )
    weights = compute_weights(q, k, shown, scale)
    if drops:
        kept = draw_kept(seed, dropout, query_block, key_block)
        weights = tl.where(kept, weights * (1.0 / (1.0 - dropout)), 0.0)
    found = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    at_mixed = locate_rows(mixed_sentence, mixed_head, mixed_row, num_heads, query_block)
    store_rows(mixed, at_mixed, found, num_queries, d_value, query_block, d_value_block)


@triton.jit(do_not_specialize=_SIZES)
def grad_kernel(
    queries,  # as above
    keys,
    values,
    visible,
    seed,
    grad,  # [B, H, T, d_value], of the output
    grad_queries,  # [B, H, T, d_key], an output
    grad_keys,  # [B, H, S, d_key], an output
    grad_values,  # [B, H, S, d_value], an output
    num_queries,
    num_keys,
    dropout,
    mask_sentence,  # strides
    mask_query,
    query_sentence,
    query_head,
    query_row,
    key_sentence,
    key_head,
    key_row,
    value_sentence,
    value_head,
    value_row,
    grad_sentence,
    grad_head,
    grad_row,
    grad_query_sentence,
    grad_query_head,
    grad_query_row,
    grad_key_sentence,
    grad_key_head,
    grad_key_row,
    grad_value_sentence,
    grad_value_head,
    grad_value_row,
    scale: tl.constexpr,
    num_heads: tl.constexpr,
    d_key: tl.constexpr,
    d_value: tl.constexpr,
    causal: tl.constexpr,
    mask_kind: tl.constexpr,
    drops: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
    d_key_block: tl.constexpr,
    d_value_block: tl.constexpr,
):
    at_queries = locate_rows(query_sentence, query_head, query_row, num_heads, query_block)
    at_keys = locate_rows(key_sentence, key_head, key_row, num_heads, key_block)
    at_values = locate_rows(value_sentence, value_head, value_row, num_heads, key_block)
    at_grad = locate_rows(grad_sentence, grad_head, grad_row, num_heads, query_block)
    q = load_rows(queries, at_queries, num_queries, d_key, query_block, d_key_block)
    k = load_rows(keys, at_keys, num_keys, d_key, key_block, d_key_block)
    v = load_rows(values, at_values, num_keys, d_value, key_block, d_value_block)
    g = load_rows(grad, at_grad, num_queries, d_value, query_block, d_value_block)
    shown = select_visible(
        visible, mask_sentence, mask_query, num_queries, num_keys, num_heads, causal, mask_kind, query_block, key_block
    )
    weights = compute_weights(q, k, shown, scale)
    grad_weights = tl.dot(g, tl.trans(v), input_precision="ieee")
    used = weights
    if drops:
        kept, factor = draw_kept(seed, dropout, query_block, key_block), 1.0 / (1.0 - dropout)
        used = tl.where(kept, weights * factor, 0.0)
        grad_weights = tl.where(kept, grad_weights * factor, 0.0)
    found = tl.dot(tl.trans(used.to(g.dtype)), g, input_precision="ieee")
    at_values = locate_rows(grad_value_sentence, grad_value_head, grad_value_row, num_heads, key_block)
    store_rows(grad_values, at_values, found, num_keys, d_value, key_block, d_value_block)
    mean = tl.sum(weights * grad_weights, axis=1)
    grad_scores = (weights * (grad_weights - mean[:, None])).to(q.dtype)
    found = tl.dot(grad_scores, k, input_precision="ieee") * scale
    at_queries = locate_rows(grad_query_sentence, grad_query_head, grad_query_row, num_heads, query_block)
    store_rows(grad_queries, at_queries, found, num_queries, d_key, query_block, d_key_block)
    found = tl.dot(tl.trans(grad_scores), q, input_precision="ieee") * scale
    at_keys = locate_rows(grad_key_sentence, grad_key_head, grad_key_row, num_heads, key_block)
    store_rows(grad_keys, at_keys, found, num_keys, d_key, key_block, d_key_block)
