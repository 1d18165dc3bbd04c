"""Fast linear layers: x W + b, with or without ReLU."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def linear(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "E D"], bias: Float[Tensor, " E"] | None
) -> Float[Tensor, "B T E"]:
    """Compute `F.linear(x, weight, bias)`."""
    if not _is_compiled_single_row(x):
        return F.linear(x, weight, bias)
    # One row keeps little of a GPU busy. The compiler parallelises a sum better than cuBLAS does the product.
    sums = (x[:, :, None].float() * weight.float()).sum(dim=-1)
    return (sums if bias is None else sums + bias.float()).to(x.dtype)


def linear_relu(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "E D"], bias: Float[Tensor, " E"] | None
) -> Float[Tensor, "B T E"]:
    """Compute relu(x W + b). Fused on CUDA, because a separate ReLU kernel costs as much to launch as to run."""
    if (
        bias is None
        or not x.is_cuda
        or x.dtype != weight.dtype
        or torch.is_grad_enabled()
        or _is_compiled_single_row(x)
    ):
        return F.relu(linear(x, weight, bias))
    return fused_linear_relu(x, weight, bias)


def fused_linear_relu(
    x: Float[Tensor, "B T D"], weight: Float[Tensor, "E D"], bias: Float[Tensor, " E"]
) -> Float[Tensor, "B T E"]:
    rows: Tensor = torch._addmm_activation(bias, x.flatten(0, 1), weight.t())
    return rows.view(*x.shape[:2], -1)


def _is_compiled_single_row(x: Float[Tensor, "B T D"]) -> bool:
    # Check the shape last. During training, a check of the dynamic shape would trigger another compilation.
    return not torch.is_grad_enabled() and x.is_cuda and torch.compiler.is_compiling() and x.shape[:2] == (1, 1)
