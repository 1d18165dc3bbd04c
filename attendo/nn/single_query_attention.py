"""Attention with one query per row on a GPU, as in every decoding step.

PyTorch's kernels are built for many queries. For one query they need a mask, keys in order, and several launches. This
kernel needs one launch, and it also writes the new key and value to the cache.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.nn.triton_launch import HAS_TRITON, next_power_of_2

# Positions read at a time. Each program uses one warp of 32 threads, because more warps would wait for each other
# (measured on an H200 with 1 to 1,024 rows).
_BLOCK, _LONG_BLOCK, _MAX_SHORT_LENGTH = 16, 32, 64


def is_supported(queries: Float[Tensor, "R H T K"]) -> bool:
    """Return whether the functions below support these queries."""
    return queries.is_cuda and queries.size(2) == 1 and not torch.is_grad_enabled() and HAS_TRITON


def attend(
    queries: Float[Tensor, "R H 1 K"],
    keys: Float[Tensor, "N H S K"],
    values: Float[Tensor, "N H S Kv"],
    visible: Bool[Tensor, "#N 1 1 S"] | None,
    bias: Float[Tensor, "#R H 1 S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "R H 1 Kv"]:
    """Attend with one query per row. Each of the N rows of keys serves R / N consecutive queries.

    `bias` is added to the scores. They are Q Kᵀ / √d_k, or with another scale.
    """
    mask = None if visible is None else visible[:, 0, 0].expand(keys.size(0), -1)
    return _launch_kernel(queries, keys, values, mask=mask, bias=bias, scale=scale)


def append_and_attend(
    queries: Float[Tensor, "R H 1 K"],
    storage: tuple[Float[Tensor, "R H C K"], Float[Tensor, "R H C Kv"]],
    new: tuple[Float[Tensor, "R H 1 K"], Float[Tensor, "R H 1 Kv"]],
    length: Int[Tensor, " R"],
    order: Int[Tensor, "R C"] | None,
    bias: Float[Tensor, "#R H 1 C"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "R H 1 Kv"]:
    """Write the new key and value at position `length` of each row, then attend to all positions up to it.

    Position p of row r is read from row `order[r, p]`.
    """
    return _launch_kernel(queries, *storage, appended=(*new, length, order), bias=bias, scale=scale)


def _launch_kernel(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    appended: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Run the kernel. `appended` are the new keys and values, and the length and order of the cache."""
    from attendo.nn import single_query_triton as kernel

    rows, heads, _, d_key = queries.shape
    d_value = values.size(-1)
    # The kernel reads contiguous vectors.
    new_keys, new_values, length, order = appended or (queries, queries, None, None)
    assert all(each.stride(-1) == 1 for each in (queries, keys, values, new_keys, new_values))
    mixed = torch.empty(rows, heads, 1, d_value, dtype=queries.dtype, device=queries.device)
    given = [queries if each is None else each for each in (length, order, mask)]
    if bias is not None:
        bias = bias[:, :, 0].expand(rows, heads, keys.size(2))  # without a copy: the strides of repeated axes are 0
        bias = bias if bias.stride(-1) == 1 else bias.contiguous()
    added = queries if bias is None else bias
    kernel.attend_kernel[(rows, heads)](
        *(queries, keys, values, new_keys, new_values, *given, added, mixed),
        keys.size(2),
        *(*queries.stride()[:2], *keys.stride()[:3], *values.stride()[:3]),
        *(*new_keys.stride()[:2], *new_values.stride()[:2], *(each.stride(0) for each in given[1:])),
        *added.stride()[:2],
        scale=1 / math.sqrt(d_key) if scale is None else scale,
        heads=heads,
        d_key=d_key,
        d_value=d_value,
        key_block=next_power_of_2(d_key),
        value_block=next_power_of_2(d_value),
        block=_BLOCK if keys.size(2) <= _MAX_SHORT_LENGTH else _LONG_BLOCK,
        width=rows // keys.size(0),
        appends=appended is not None,
        ordered=order is not None,
        masked=mask is not None,
        biased=bias is not None,
        num_warps=1,
    )
    return mixed
