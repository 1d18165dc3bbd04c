"""Attention for training on short sequences, with gradients.

PyTorch's kernels are made for long sequences: they split queries and keys into blocks and combine the results. Here one
program has all queries and keys of a head. It reads and writes the heads where the projections have them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.triton_launch import launch, next_power_of_2

# Queries, and keys. Without tensor cores a program has as many instructions as multiplications, so it must be smaller.
_MAX_LENGTH, _MAX_FLOAT32_LENGTH = 64, 32
_MAX_WIDTH, _WIDTH_STEP = 128, 16  # of a key or value of one head
# Numbers of the largest matrix of a program: no kernel for sm_90 spills registers (ptxas of CUDA 12.8).
_NUMBERS_PER_WARP, _FLOAT32_NUMBERS_PER_WARP = 1024, 256
_MAX_SEED = (1 << 63) - 1


def is_supported(
    queries: Float[Tensor, "B H T K"], keys: Float[Tensor, "N G S K"], values: Float[Tensor, "N G S Kv"]
) -> bool:
    """Return whether `attend` supports these tensors. A compiler fuses PyTorch's code itself."""
    if torch.compiler.is_compiling() or not triton_launch.runs_kernels(queries) or not _has_tensor_cores(queries):
        return False
    dtypes = {_autocast_dtype(each) for each in (queries, keys, values)}
    max_length = _MAX_FLOAT32_LENGTH if torch.float32 in dtypes else _MAX_LENGTH
    return (
        queries.shape[:2] == keys.shape[:2]
        and keys.shape[:3] == values.shape[:3]
        and len(dtypes) == 1
        and all(1 <= length <= max_length for length in (queries.size(2), keys.size(2)))
        and all(width <= _MAX_WIDTH and width % _WIDTH_STEP == 0 for width in (keys.size(3), values.size(3)))
    )


def attend(
    queries: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B H S K"],
    values: Float[Tensor, "B H S Kv"],
    visible: Bool[Tensor, "#B 1 #T S"] | None,
    causal: bool,
    dropout: float,
    scale: float | None = None,
) -> Float[Tensor, "B H T Kv"]:
    """Attend with softmax(Q Kᵀ / √d_k), or with another scale, and drop this share of the weights.

    A query without visible keys gets zeros.
    """
    given = [each.to(_autocast_dtype(each)) for each in (queries, keys, values)]
    scale = 1 / math.sqrt(queries.size(3)) if scale is None else scale
    mixed: Tensor = _ShortAttention.apply(*given, visible, _Settings(causal, dropout, scale))
    return mixed


def _has_tensor_cores(tensor: Tensor) -> bool:
    """Return whether the tensor cores of its GPU support bf16, as since Ampere. Other devices run the interpreter."""
    return not tensor.is_cuda or torch.cuda.get_device_capability(tensor.device) >= (8, 0)


def _autocast_dtype(tensor: Tensor) -> torch.dtype:
    """Return the precision to which autocast would convert the tensor for PyTorch's attention."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


@dataclass(frozen=True)
class _Settings:
    causal: bool
    dropout: float
    scale: float


class _ShortAttention(torch.autograd.Function):
    """Keeps the inputs and the seed. The backward pass computes the weights again, and draws the same dropout."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None,
        settings: "_Settings",
    ) -> Tensor:
        from attendo.nn.short_attention_triton import attend_kernel

        queries, keys, values = (_with_contiguous_vectors(each) for each in (queries, keys, values))
        if visible is not None:  # without a copy: the strides of repeated axes are 0
            repeated = visible.expand(len(queries), 1, queries.size(2), keys.size(2))
            visible = _with_contiguous_vectors(repeated)
        # Drawn on the GPU, so that every replay of a CUDA graph draws another seed.
        seed = torch.randint(_MAX_SEED, (1,), device=queries.device) if settings.dropout else None
        mixed = _empty_heads(queries, values.size(3))
        _launch_kernel(attend_kernel, (queries, keys, values, visible, seed), [mixed], settings)
        ctx.save_for_backward(queries, keys, values, visible, seed)
        ctx.settings = settings
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from attendo.nn.short_attention_triton import grad_kernel

        gradients = [_empty_heads(each, each.size(3)) for each in ctx.saved_tensors[:3]]
        more = [_with_contiguous_vectors(grad), *gradients]
        _launch_kernel(grad_kernel, ctx.saved_tensors, more, ctx.settings)
        return *gradients, None, None


def _launch_kernel(
    kernel: Any,
    saved: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    more: Sequence[Tensor],
    settings: "_Settings",
) -> None:
    """Run the kernel on the saved tensors, and on `more`, which have heads too."""
    queries, keys, values, visible, seed = saved
    blocks = [next_power_of_2(size) for size in (queries.size(2), keys.size(2), keys.size(3), values.size(3))]
    numbers_per_warp = _NUMBERS_PER_WARP if queries.itemsize == 2 else _FLOAT32_NUMBERS_PER_WARP
    mask_strides = (0, 0) if visible is None else (visible.stride(0), visible.stride(2))
    strides = [each.stride(axis) for each in (queries, keys, values, *more) for axis in range(3)]
    launch(
        kernel,
        (queries.size(0) * queries.size(1),),
        *(queries, keys, values, queries if visible is None else visible, queries if seed is None else seed, *more),
        *(queries.size(2), keys.size(2), float(settings.dropout), *mask_strides, *strides),
        scale=settings.scale,
        num_heads=queries.size(1),
        d_key=keys.size(3),
        d_value=values.size(3),
        causal=settings.causal,
        mask_kind="none" if visible is None else "keys" if visible.stride(2) == 0 else "matrix",
        drops=settings.dropout > 0,
        query_block=blocks[0],
        key_block=blocks[1],
        d_key_block=blocks[2],
        d_value_block=blocks[3],
        num_warps=max(1, max(blocks[:2]) * max(blocks) // numbers_per_warp),
    )


def _empty_heads(like: Float[Tensor, "B H T K"], width: int) -> Float[Tensor, "B H T Kv"]:
    """Return memory in which the heads of a position are adjacent, as projections have them."""
    batch, heads, length, _ = like.shape
    return like.new_empty((batch, length, heads, width)).transpose(1, 2)


def _with_contiguous_vectors(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()
