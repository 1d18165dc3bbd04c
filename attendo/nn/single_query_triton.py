"""Triton kernel for attention with one query per row. `single_query_attention.py` launches it.

A program computes one head of one row. It reads every key and value once and never writes a score to memory.
"""

import triton
import triton.language as tl


@triton.jit  # Triton accepts only its own annotations
def _add_bias(scores, bias, positions, seen, biased: tl.constexpr):
    """Add the bias of these positions, if there is one."""
    if biased:
        scores += tl.load(bias + positions, mask=seen, other=0.0).to(tl.float32)
    return scores


@triton.jit
def attend_kernel(
    queries,  # [R, H, d_key]
    keys,  # [N, H, P, d_key]
    values,  # [N, H, P, d_value]
    new_keys,  # [R, H, d_key], written to position `lengths[row]` of the row and attended to
    new_values,
    lengths,  # [R] number of cached positions of each row
    order,  # [R, P] the row that stores each position
    visible,  # [N, P] False for masked positions
    bias,  # [R, H, P] added to the scores
    mixed,  # [R, H, d_value], the output
    num_positions,
    query_row,
    query_head,
    key_row,
    key_head,
    key_position,
    value_row,
    value_head,
    value_position,
    new_key_row,
    new_key_head,
    new_value_row,
    new_value_head,
    order_row,
    visible_row,
    bias_row,
    bias_head,
    scale: tl.constexpr,
    heads: tl.constexpr,
    d_key: tl.constexpr,
    d_value: tl.constexpr,
    key_block: tl.constexpr,  # the next power of 2
    value_block: tl.constexpr,
    block: tl.constexpr,  # positions at a time
    width: tl.constexpr,  # consecutive rows that share keys and values
    appends: tl.constexpr,  # new keys, new values and lengths are given
    ordered: tl.constexpr,
    masked: tl.constexpr,
    biased: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k, v = tl.arange(0, key_block), tl.arange(0, value_block)
    in_key, in_value = k < d_key, v < d_value
    query = tl.load(queries + row * query_row + head * query_head + k, mask=in_key, other=0.0).to(tl.float32) * scale
    keys, values = keys + head * key_head, values + head * value_head
    bias += row * bias_row + head * bias_head
    if appends:
        num_positions = tl.load(lengths + row)
        key = tl.load(new_keys + row * new_key_row + head * new_key_head + k, mask=in_key, other=0.0)
        value = tl.load(new_values + row * new_value_row + head * new_value_head + v, mask=in_value, other=0.0)
        tl.store(keys + row * key_row + num_positions * key_position + k, key, mask=in_key)
        tl.store(values + row * value_row + num_positions * value_position + v, value, mask=in_value)
        top = _add_bias(tl.sum(query * key.to(tl.float32)), bias, num_positions, True, biased)
        total = 1.0
        sums = value.to(tl.float32)
    else:
        top, total = float("-inf"), 0.0
        sums = tl.zeros([value_block], tl.float32)
    for first in range(0, num_positions, block):
        positions = first + tl.arange(0, block)
        seen = positions < num_positions
        source = positions * 0 + row // width
        if ordered:
            source = tl.load(order + row * order_row + positions, mask=seen, other=0)
        if masked:
            seen = seen & (tl.load(visible + (row // width) * visible_row + positions, mask=seen, other=0) != 0)
        at = source[:, None] * key_row + positions[:, None] * key_position + k[None, :]
        here = tl.load(keys + at, mask=seen[:, None] & in_key[None, :], other=0.0).to(tl.float32)
        scores = tl.where(seen, _add_bias(tl.sum(here * query, axis=1), bias, positions, seen, biased), float("-inf"))
        highest = tl.maximum(top, tl.max(scores, axis=0))
        level = tl.where(highest == float("-inf"), 0.0, highest)
        weights, shrunk = tl.exp(scores - level), tl.exp(top - level)
        at = source[:, None] * value_row + positions[:, None] * value_position + v[None, :]
        here = tl.load(values + at, mask=seen[:, None] & in_value[None, :], other=0.0).to(tl.float32)
        sums = sums * shrunk + tl.sum(weights[:, None] * here, axis=0)
        total = total * shrunk + tl.sum(weights, axis=0)
        top = highest
    answer = sums / tl.where(total == 0.0, 1.0, total)  # no visible key: zeros
    tl.store(mixed + (row * heads + head) * d_value + v, answer, mask=in_value)
