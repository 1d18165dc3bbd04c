"""Compares the Triton kernels of training with the formula in float64, and times them beside PyTorch's.

    python benchmarks/training_kernels.py [--compare-only]

Every kernel runs on random numbers of several shapes. A line of JSON has the largest difference of each output and
gradient from the formula in float64, relative to the largest number, and the same difference of the formula in the
kernel's precision. On a GPU, a second run must give the same bits. Then both are timed as CUDA graphs: the median of
the replays. Without a GPU, only the comparison runs, on small shapes and with Triton's interpreter. The exit status is
1 if a difference exceeds the tolerance and is several times as large as PyTorch's.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from parallel_loss import DEVICE, MULTIPLE, ON_GPU, milliseconds, run_twice, with_kernels
from torch import Tensor

from attendo.nn import short_attention, triton_launch
from attendo.nn.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    fused_attention,
    without_cudnn_attention,
)
from attendo.nn.masks import Mask, padding_mask

# Largest |difference| / largest |expected|.
TOLERANCES = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
# The interpreter multiplies the bits of bfloat16 as if they were integers (seen with Triton 3.9).
PRECISIONS = [torch.float32, torch.float16, *[torch.bfloat16] * ON_GPU]
SEED = 7


@dataclass(frozen=True)
class Attention:
    batch: int
    heads: int
    queries: int
    keys: int
    d_key: int
    d_value: int
    mask: str  # none, causal, padding, matrix: one for all sentences, hidden: another one for each, with empty rows
    dropout: float = 0.0


SMALL_ATTENTION = [
    Attention(3, 2, 5, 7, 32, 16, "padding"),
    Attention(2, 2, 14, 14, 64, 64, "causal", 0.1),
    Attention(2, 2, 17, 9, 16, 48, "matrix", 0.3),
    Attention(3, 2, 16, 16, 32, 32, "hidden", 0.1),
    Attention(3, 2, 1, 9, 16, 16, "padding", 0.1),
    Attention(2, 1, 9, 1, 32, 32, "none"),
    Attention(2, 2, 5, 7, 16, 16, "none", 0.5),
    Attention(3, 2, 20, 30, 48, 32, "hidden"),
    Attention(3, 1, 60, 14, 64, 64, "padding", 0.1),
    Attention(1, 2, 64, 64, 64, 64, "causal"),
    Attention(1, 1, 17, 64, 80, 128, "matrix"),
    Attention(1, 1, 64, 17, 128, 16, "hidden", 0.3),
]
LARGE_ATTENTION = [
    Attention(580, 4, 14, 14, 64, 64, "padding", 0.1),
    Attention(580, 4, 60, 60, 64, 64, "padding", 0.1),
    Attention(88000, 4, 32, 32, 64, 64, "padding"),  # over 2^31 numbers
]
TIMED_SIZES = [(14, 14, "causal"), (14, 14, "padding"), (60, 60, "causal"), (60, 60, "padding"), (60, 14, "padding")]
TIMED_ATTENTION = [
    Attention(580, 4, *sizes[:2], 64, 64, sizes[2], rate) for sizes in TIMED_SIZES for rate in (0.0, 0.1)
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--compare-only", action="store_true", help="do not measure times")
    compare_only = parser.parse_args().compare_only
    if not triton_launch.HAS_TRITON:
        sys.exit("Triton is not installed: it comes with torch for GPUs")
    torch.manual_seed(1)
    attention = SMALL_ATTENTION + LARGE_ATTENTION * ON_GPU
    passed = [
        *(compare_attention(case, dtype) for case in attention for dtype in PRECISIONS),
        compare_attention_module(),
        check_dropout(Attention(20, 2, 30, 30, 16, 32, "none", 0.1)),
    ]
    if ON_GPU and not compare_only:
        for case in TIMED_ATTENTION:
            time_attention(case)
    sys.exit(0 if all(passed) else 1)


def compare_attention(case: Attention, dtype: torch.dtype) -> bool:
    inputs, mask = random_heads(case, dtype), random_mask(case)
    given = torch.randn(case.batch, case.queries, case.heads, case.d_value, device=DEVICE, dtype=dtype).transpose(1, 2)
    with with_kernels(True):
        if ON_GPU and not short_attention.is_supported(*inputs):  # float32 of this length
            return True
    too_large = inputs[0].numel() * 3 > 1 << 31  # for all sentences in float64
    rows = slice(-2, None) if too_large else slice(None)

    def kernel() -> Sequence[Tensor]:
        torch.manual_seed(SEED)
        leaves = [each.detach().requires_grad_() for each in inputs]
        mixed = short_attention.attend(*leaves, mask.visible, mask.causal, case.dropout)
        return [each[rows].detach() for each in (mixed, *torch.autograd.grad(mixed, leaves, given))]

    def formula(dtype: torch.dtype) -> Sequence[Tensor]:
        queries, keys, values = leaves = [each[rows].detach().to(dtype).requires_grad_() for each in inputs]
        few = mask if mask.visible is None or len(mask.visible) == 1 else Mask(mask.visible[rows])
        weights = attention_weights(queries, KeysValues(keys, values), few) * factors
        mixed = weights.to(dtype) @ values
        return [mixed.detach(), *torch.autograd.grad(mixed, leaves, given[rows].to(dtype))]

    factors = kept_weights(case)[rows] / (1 - case.dropout) if case.dropout else 1.0
    found = run_twice(kernel)
    return report(f"attention {dtype}", vars(case), found, formula(dtype), formula(torch.float64))


def compare_attention_module() -> bool:
    """Attention of the network over itself and over a memory, with the kernels and without."""
    module = MultiHeadAttention(64, 2).to(DEVICE)
    x, memory, weights = (torch.randn(3, length, 64, device=DEVICE) for length in (9, 6, 9))
    is_token = torch.arange(6, device=DEVICE) < torch.tensor([[6], [2], [4]], device=DEVICE)

    def work(module: MultiHeadAttention, dtype: torch.dtype) -> Sequence[Tensor]:
        given = [x.detach().to(dtype).requires_grad_(), memory.detach().to(dtype).requires_grad_()]
        own = module(*module.queries_keys_values(given[0]), Mask(causal=True))
        mixed = own + module(module.queries(given[0]), module.keys_values(given[1]), padding_mask(is_token))
        return [mixed.detach(), *torch.autograd.grad(mixed, [*given, *module.parameters()], weights.to(dtype))]

    found, plain = run_twice(lambda: work(module, torch.float32)), work(module, torch.float32)
    projected = module.queries_keys_values(x)
    with with_kernels(True):
        mixed = fused_attention(*projected, Mask())
        with torch.no_grad():
            decoded = fused_attention(*projected, Mask())
    with torch.no_grad():
        assert torch.equal(decoded, fused_attention(*projected, Mask())), "decoding uses the kernel"
    assert "ShortAttention" in str(mixed.grad_fn), "training does not use the kernel"
    return report("attention module", {}, found, plain, work(module.double(), torch.float64))


def check_dropout(case: Attention) -> bool:
    """The share of dropped weights, in total, for every query, every key and every head."""
    first, again, other = (kept_weights(case, seed) for seed in (SEED, SEED, SEED + 1))
    shares = [1 - first.double().mean(axes) for axes in ((0, 1, 2, 3), (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))]
    shares.append((first != other).double().mean()[None] / 2 / (1 - case.dropout))  # two draws are independent
    neighbours = (first[:, :, 1:] != first[:, :, :-1], first[..., 1:] != first[..., :-1], first[1:] != first[:-1])
    shares += [each.double().mean()[None] / 2 / (1 - case.dropout) for each in neighbours]
    # Six standard deviations of the mean of independent numbers.
    limits = [6 * math.sqrt(case.dropout * each.numel() / first.numel()) for each in shares]
    differences = [float((each - case.dropout).abs().max()) for each in shares]
    passed = torch.equal(first, again) and all(each < limit for each, limit in zip(differences, limits, strict=True))
    row = {"compare": "attention dropout", **vars(case), "share_differences": differences, "limits": limits}
    print(json.dumps({**row, "passed": passed}), flush=True)
    return passed


def kept_weights(case: Attention, seed: int = SEED) -> Tensor:
    """Return which weights dropout keeps: equal weights of values that are the rows of an identity matrix."""
    torch.manual_seed(seed)
    zeros = torch.zeros(case.batch, case.heads, max(case.queries, case.keys), 16, device=DEVICE)
    width = math.ceil(case.keys / 16) * 16
    values = torch.eye(case.keys, width, device=DEVICE).expand(case.batch, case.heads, -1, -1)
    inputs = (zeros[:, :, : case.queries].half(), zeros[:, :, : case.keys].half(), values.half())
    with with_kernels(True), torch.no_grad():
        return short_attention.attend(*inputs, None, False, case.dropout)[..., : case.keys] > 0


def random_heads(case: Attention, dtype: torch.dtype) -> list[Tensor]:
    """Queries, keys and values as views of projections, [B, T, 3 * H * K], as in the network."""
    sizes = ((case.queries, case.d_key), (case.keys, case.d_key), (case.keys, case.d_value))
    projected = [
        torch.randn(case.batch, length, 3 * case.heads * width, device=DEVICE, dtype=dtype) for length, width in sizes
    ]
    split = [each.chunk(3, dim=-1)[part] for part, each in enumerate(projected)]
    return [each.unflatten(-1, (case.heads, -1)).transpose(1, 2) for each in split]


def random_mask(case: Attention) -> Mask:
    """Padding of random lengths, or a random matrix. Some queries have no visible keys."""
    if case.mask in ("none", "causal"):
        return Mask(causal=case.mask == "causal")
    if case.mask == "padding":
        lengths = torch.randint(1, case.keys + 1, (case.batch, 1), device=DEVICE)
        lengths[-2 if case.batch > 2 else 0] = 0 if case.batch > 2 else case.keys
        return padding_mask(torch.arange(case.keys, device=DEVICE) < lengths)
    sentences = 1 if case.mask == "matrix" else case.batch
    visible = torch.rand(sentences, 1, case.queries, case.keys, device=DEVICE) < 0.6
    if case.mask == "hidden":
        visible[:, :, 1::3] = False
    return Mask(visible)


def report(
    name: str,
    shape: Mapping[str, object],
    found: Sequence[Tensor],
    plain: Sequence[Tensor],
    expected: Sequence[Tensor],
) -> bool:
    """Print the largest difference of each output, and return whether all are small enough."""
    differences = [relative_difference(*pair) for pair in zip(found, expected, strict=True)]
    usual = [relative_difference(*pair) for pair in zip(plain, expected, strict=True)]
    limits = [max(TOLERANCES[each.dtype], MULTIPLE * other) for each, other in zip(plain, usual, strict=True)]
    passed = all(each <= limit for each, limit in zip(differences, limits, strict=True))
    row = {"compare": name, **shape, "kernel_differences": differences, "torch_differences": usual}
    print(json.dumps({**row, "passed": passed}), flush=True)
    return passed


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected number; NaN if a number is NaN."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    largest = float(expected.abs().max())
    return float((found - expected).abs().max()) / (largest or 1.0)


def time_attention(case: Attention) -> None:
    """Time attention as the network uses it: from the projections to the joined heads."""
    width, is_self = case.heads * case.d_key, case.queries == case.keys
    x = torch.randn(case.batch, case.queries, (3 if is_self else 1) * width, device=DEVICE, dtype=torch.bfloat16)
    memory = torch.randn(case.batch, case.keys, 2 * width, device=DEVICE, dtype=torch.bfloat16)
    inputs = [each.requires_grad_() for each in ((x,) if is_self else (x, memory))]
    mask = random_mask(case)

    def work() -> Tensor:
        split = x.chunk(3, -1) if is_self else (x, *memory.chunk(2, -1))
        queries, keys, values = (each.unflatten(-1, (case.heads, -1)).transpose(1, 2) for each in split)
        with without_cudnn_attention():
            mixed = fused_attention(queries, KeysValues(keys, values), mask, case.dropout)
        return mixed.transpose(1, 2).flatten(2)

    time_work("attention bf16", vars(case), work, inputs)


def time_work(name: str, shape: Mapping[str, object], work: Callable[[], Tensor], inputs: list[Tensor]) -> None:
    """Time the work alone, and with the gradients of the inputs."""
    row = {"time": name, **shape}
    with torch.no_grad():
        weights = torch.randn_like(work())
    for kernels, system in ((False, "torch"), (True, "kernel")):
        with with_kernels(kernels):
            row[f"{system}_ms"] = milliseconds(lambda: [work().detach()])
            row[f"{system}_with_gradients_ms"] = milliseconds(lambda: torch.autograd.grad(work(), inputs, weights))
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
