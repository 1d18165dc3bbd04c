"""Residual connection with pre-norm, post-norm or sandwich norm. No other module depends on the choice."""

from typing import Any, Literal, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from attendo.nn import triton_launch
from attendo.nn.triton_launch import launch, next_power_of_2

Norm = Literal["pre", "post", "sandwich"]
NormKind = Literal["layer", "rms"]

# Of the kernels: numbers of a block, 16 for each thread of 4 warps; programs that sum the gradients of the weights, 4
# for each processor of a large GPU; and the widest row that fits into registers.
_BLOCK, _WARPS, _PROGRAMS, _MAX_WIDTH = 2048, 4, 512, 8192
_QUARTER = 512  # numbers with one of the four random numbers of Philox


class Residual(nn.Module):
    """Pre-norm: x + Sublayer(Norm(x)). Post-norm, as in the paper: Norm(x + Sublayer(x)).

    Sandwich norm, with a norm of the output: x + Norm(Sublayer(Norm(x))) (Ding et al. 2021).
    """

    def __init__(
        self, normalise: nn.Module, norm: Norm, dropout: float = 0.0, normalise_output: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.normalise_output = normalise_output  # of sandwich norm
        self.pre_norm = norm != "post"
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """Return x for `leave`, and the input of the sub-layer."""
        if not self.pre_norm:
            return x, x
        if self._runs_kernels(x) and _has_kernel(self.normalise):
            return normalise_with_kernel(x, self.normalise)
        return x, self.normalise(x)

    def leave(self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the output `y` of the sub-layer to its input `x`, and normalise the sum with post-norm."""
        if self.normalise_output is not None:
            y = self.normalise_output(y)
        if self._runs_kernels(x) and self.dropout.p:
            x = add_dropped_with_kernel(x, y, self.dropout.p)
        else:
            x = x + self.dropout(y)
        return x if self.pre_norm else self.normalise(x)

    def _runs_kernels(self, x: Float[Tensor, "B T D"]) -> bool:
        """Return whether this is training on a GPU. A compiler fuses PyTorch's operations itself."""
        return self.training and triton_launch.runs_kernels(x) and not is_compiling() and 0 < x.size(-1) <= _MAX_WIDTH


def make_norm(kind: NormKind, d_model: int, epsilon: float) -> nn.Module:
    return nn.LayerNorm(d_model, eps=epsilon) if kind == "layer" else nn.RMSNorm(d_model, eps=epsilon)


def _has_kernel(norm: nn.Module) -> TypeGuard[nn.LayerNorm | nn.RMSNorm]:
    """Return whether the kernel computes this norm: LayerNorm with weights and biases, or RMSNorm with weights."""
    if isinstance(norm, nn.LayerNorm):
        return norm.weight is not None and norm.bias is not None
    return isinstance(norm, nn.RMSNorm) and norm.weight is not None


def normalise_with_kernel(
    x: Float[Tensor, "B T D"], norm: nn.LayerNorm | nn.RMSNorm
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
    """Return x and Norm(x), in the precision of autocast.

    The next product would convert Norm(x) to it. One kernel adds the gradients of both.
    """
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    epsilon = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    skip, normalised = _KernelNormalise.apply(x, norm.weight, bias, epsilon, dtype)
    return skip, normalised


def add_dropped_with_kernel(
    x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"], rate: float
) -> Float[Tensor, "B T D"]:
    """Return x + dropout(y). The seed is drawn on the device, so that a captured pass draws another one every time."""
    seed = torch.empty(1, dtype=torch.int64, device=x.device).random_()
    total: Tensor = _KernelAddDropped.apply(x, y, seed, rate)
    return total


class _KernelNormalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        from attendo.nn.residual_triton import normalise_kernel

        x = x.contiguous()
        rows, is_layer = x.numel() // x.size(-1), bias is not None
        output, scales = torch.empty_like(x, dtype=dtype), x.new_empty(rows, dtype=torch.float32)
        means = torch.empty_like(scales) if is_layer else scales
        sizes = _norm_sizes(x, is_layer)
        given = (x, weight, bias if is_layer else weight, output, means, scales, rows)
        launch(normalise_kernel, (-(-rows // sizes["row_block"]),), *given, epsilon=epsilon, **sizes)
        ctx.save_for_backward(x, weight, means, scales)
        ctx.sizes = sizes
        return x, output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_skip: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        from attendo.nn.residual_triton import normalise_grad_kernel

        x, weight, means, scales = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_weights = x.new_empty((_PROGRAMS, x.size(-1)), dtype=torch.float32)
        is_layer = ctx.sizes["is_layer"]
        grad_biases = torch.empty_like(grad_weights) if is_layer else grad_weights
        received = (grad_skip.contiguous(), grad_output.contiguous())
        given = (x, weight, means, scales, *received, grad_x, grad_weights, grad_biases, len(scales))
        launch(normalise_grad_kernel, (_PROGRAMS,), *given, num_programs=_PROGRAMS, **ctx.sizes)
        grad_bias = grad_biases.sum(0).to(weight.dtype) if is_layer else None
        return grad_x, grad_weights.sum(0).to(weight.dtype), grad_bias, None, None


class _KernelAddDropped(torch.autograd.Function):
    """Draws the random numbers a second time for the gradient, instead of keeping which numbers were dropped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, seed: Int[Tensor, " 1"], rate: float) -> Tensor:
        x, y = x.contiguous(), y.contiguous()
        total = torch.empty_like(x, dtype=torch.promote_types(x.dtype, y.dtype))
        _launch_add_dropped(x, y, total, seed, rate, adds=True)
        ctx.save_for_backward(seed)
        ctx.rate, ctx.dtypes = rate, (x.dtype, y.dtype)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (seed,) = ctx.saved_tensors
        grad = grad.contiguous()
        grad_y = torch.empty_like(grad, dtype=ctx.dtypes[1])
        _launch_add_dropped(grad, grad, grad_y, seed, ctx.rate, adds=False)
        return grad.to(ctx.dtypes[0]), grad_y, None, None


def _launch_add_dropped(skip: Tensor, y: Tensor, output: Tensor, seed: Tensor, rate: float, adds: bool) -> None:
    from attendo.nn.residual_triton import add_dropped_kernel

    programs = -(-y.numel() // (4 * _QUARTER))
    launch(add_dropped_kernel, (programs,), skip, y, output, seed, y.numel(), rate=rate, adds=adds, block=_QUARTER)


def _norm_sizes(x: Float[Tensor, "B T D"], is_layer: bool) -> dict[str, Any]:
    width_block = next_power_of_2(x.size(-1))
    return {
        "is_layer": is_layer,
        "width": x.size(-1),
        "row_block": max(1, _BLOCK // width_block),
        "width_block": width_block,
        "num_warps": max(_WARPS, width_block // _BLOCK * _WARPS),
    }
