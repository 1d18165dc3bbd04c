"""Triton kernels for normalisation, dropout and residual sums in training. `residual.py` launches them.

They read every number in its own precision, compute in float32 and write it once. PyTorch's operations write and read
several tensors of the same size between each other.
"""

import triton
import triton.language as tl

_ROUNDS: tl.constexpr = tl.constexpr(7)  # of Philox, as in cuRAND's documentation: enough to pass BigCrush


@triton.jit
def _load_rows(numbers, rows, columns, num_rows, width: tl.constexpr):
    """Load a block of rows in float32, 0 outside. Return it with its addresses' offsets and the mask."""
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]  # 64 bits: N * D may exceed 32
    return tl.load(numbers + offsets, mask=inside, other=0.0).to(tl.float32), offsets, inside


@triton.jit(do_not_specialize=["num_rows"])  # it differs between batches
def normalise_kernel(
    x,  # [N, D]
    weight,  # [D]
    bias,  # [D], of LayerNorm
    output,  # [N, D]
    means,  # [N], of LayerNorm, for the gradient
    scales,  # [N], 1 / standard deviation, for the gradient
    num_rows,
    epsilon: tl.constexpr,
    is_layer: tl.constexpr,  # LayerNorm, otherwise RMSNorm
    width: tl.constexpr,
    row_block: tl.constexpr,
    width_block: tl.constexpr,
):
    rows, columns = tl.program_id(0) * row_block + tl.arange(0, row_block), tl.arange(0, width_block)
    here, offsets, inside = _load_rows(x, rows, columns, num_rows, width)
    if is_layer:
        mean = tl.sum(here, axis=1) / width
        tl.store(means + rows, mean, mask=rows < num_rows)
        here = tl.where(inside, here - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(here * here, axis=1) / width + epsilon)
    tl.store(scales + rows, scale, mask=rows < num_rows)
    here *= scale[:, None] * tl.load(weight + columns, mask=columns < width, other=0.0)[None, :]
    if is_layer:
        here += tl.load(bias + columns, mask=columns < width, other=0.0)[None, :]
    tl.store(output + offsets, here, mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def normalise_grad_kernel(
    x,  # [N, D]
    weight,  # [D]
    means,  # [N], of LayerNorm
    scales,  # [N]
    grad_skip,  # [N, D], of x in the residual sum
    grad_output,  # [N, D]
    grad_x,  # [N, D], the output
    grad_weights,  # [P, D], the sum over the rows of each of the P = num_programs programs
    grad_biases,  # [P, D], of LayerNorm
    num_rows,
    is_layer: tl.constexpr,
    width: tl.constexpr,
    num_programs: tl.constexpr,
    row_block: tl.constexpr,
    width_block: tl.constexpr,
):
    columns = tl.arange(0, width_block)
    weights = tl.load(weight + columns, mask=columns < width, other=0.0)[None, :]
    sum_weight = tl.zeros([width_block], tl.float32)
    sum_bias = tl.zeros([width_block], tl.float32)
    for block in range(tl.program_id(0), (num_rows + row_block - 1) // row_block, num_programs):
        rows = block * row_block + tl.arange(0, row_block)
        here, offsets, inside = _load_rows(x, rows, columns, num_rows, width)
        received = tl.load(grad_output + offsets, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scales + rows, mask=rows < num_rows, other=0.0)[:, None]
        if is_layer:
            here = tl.where(inside, here - tl.load(means + rows, mask=rows < num_rows, other=0.0)[:, None], 0.0)
            sum_bias += tl.sum(received, axis=0)
        here *= scale
        sum_weight += tl.sum(received * here, axis=0)
        received *= weights
        change = received - here * (tl.sum(received * here, axis=1) / width)[:, None]
        if is_layer:
            change -= (tl.sum(received, axis=1) / width)[:, None]
        change = change * scale + tl.load(grad_skip + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_x + offsets, change, mask=inside)
    partial = tl.program_id(0) * width + columns
    tl.store(grad_weights + partial, sum_weight, mask=columns < width)
    if is_layer:
        tl.store(grad_biases + partial, sum_bias, mask=columns < width)


@triton.jit(do_not_specialize=["count"])
def add_dropped_kernel(
    skip,  # [N], numbers in the order of memory; not read if there is no sum
    y,  # [N]
    output,  # [N]
    seed,  # [1]
    count,
    rate: tl.constexpr,  # share of numbers that become 0
    adds: tl.constexpr,  # skip + dropout(y), otherwise dropout(y): also its gradient
    block: tl.constexpr,  # numbers of a quarter: Philox makes four random numbers at a time
):
    quarter, program = tl.arange(0, block), tl.program_id(0).to(tl.int64)
    number = tl.load(seed)
    first, second, third, fourth = tl.rand4x(number, program * block + quarter, n_rounds=_ROUNDS)
    for i in tl.static_range(4):
        random = first if i == 0 else second if i == 1 else third if i == 2 else fourth
        offsets = (program * 4 + i) * block + quarter
        inside = offsets < count
        found = tl.load(y + offsets, mask=inside, other=0.0).to(tl.float32)
        found = tl.where(random >= rate, found / (1 - rate), 0.0)
        if adds:
            found += tl.load(skip + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(output + offsets, found, mask=inside)
