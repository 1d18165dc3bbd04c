"""Compares the Triton kernels of training with the formula in float64, and times them beside PyTorch's.

    python benchmarks/training_kernels.py [--compare-only]

Every kernel runs on random numbers of several shapes. A line of JSON has the largest difference of each output and
gradient from the formula in float64, relative to the largest number, and the same difference of the formula in the
kernel's precision. On a GPU, a second run must give the same bits. Then both are timed as CUDA graphs: the median of
the replays. Without a GPU, only the comparison runs, on small shapes and with Triton's interpreter. The exit status is
1 if a difference exceeds the tolerance and is several times as large as PyTorch's.
"""

import argparse
import copy
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from parallel_loss import DEVICE, MULTIPLE, ON_GPU, milliseconds, run_twice, run_without, with_kernels
from torch import Tensor

from attendo.nn import short_attention, triton_launch
from attendo.nn.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    fused_attention,
    without_cudnn_attention,
)
from attendo.nn.cross_entropy import cross_entropy_sum
from attendo.nn.masks import Mask, padding_mask
from attendo.nn.residual import _QUARTER, NormKind, Residual, add_dropped_with_kernel, make_norm, normalise_with_kernel

# Largest |difference| / largest |expected|.
TOLERANCES = {torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
# The interpreter multiplies the bits of bfloat16 as if they were integers (seen with Triton 3.9).
PRECISIONS = [torch.float32, torch.bfloat16 if ON_GPU else torch.float16]
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
    scale: float | None = None  # of the scores; None: 1 / √d_key


@dataclass(frozen=True)
class Rows:
    rows: int
    width: int  # of a vector, or the size of the vocabulary


SMALL_NORMS = [Rows(15, 24), Rows(1, 256), Rows(231, 256), Rows(1100, 700)]
LARGE_NORMS = [Rows(35000, 256), Rows(8192, 1024), Rows(40, 8192), Rows(4_200_000, 512)]  # the last one: over 2^31
TIMED_NORMS = [Rows(8192, 256), Rows(35000, 256), Rows(32768, 512), Rows(32768, 1024)]
SMALL_LOGITS = [Rows(6, 37), Rows(3, 9001)]
LARGE_LOGITS = [Rows(8192, 8000), Rows(2000, 32000), Rows(270_000, 8001)]  # the last one: over 2^31
TIMED_LOGITS = [Rows(8192, 8000), Rows(8192, 32000)]
EPSILON, IGNORED = 1e-5, 0

SMALL_ATTENTION = [
    Attention(3, 2, 5, 7, 32, 16, "padding"),
    Attention(2, 2, 14, 14, 64, 64, "causal", 0.1),
    Attention(2, 2, 17, 9, 16, 48, "matrix", 0.3, scale=0.6),
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
    norms, logits = SMALL_NORMS + LARGE_NORMS * ON_GPU, SMALL_LOGITS + LARGE_LOGITS * ON_GPU
    passed = [
        *(compare_attention(case, dtype) for case in attention for dtype in PRECISIONS),
        compare_attention_module(),
        check_dropout(Attention(20, 2, 30, 30, 16, 32, "none", 0.1)),
        *(compare_norm(case, kind, dtype) for case in norms for kind in ("layer", "rms") for dtype in PRECISIONS),
        *(compare_residual_sum(case, rate) for case in norms for rate in (0.1, 0.5)),
        *(compare_cross_entropy(case, rate, dtype) for case in logits for rate in (0.0, 0.1) for dtype in PRECISIONS),
    ]
    if ON_GPU and not compare_only:
        for rows in TIMED_NORMS:
            time_norm(rows)
            time_residual_sum(rows)
        for rows in TIMED_LOGITS:
            time_cross_entropy(rows)
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
        mixed = short_attention.attend(*leaves, mask.visible, mask.causal, case.dropout, case.scale)
        return [each[rows].detach() for each in (mixed, *torch.autograd.grad(mixed, leaves, given))]

    def formula(dtype: torch.dtype) -> Sequence[Tensor]:
        queries, keys, values = leaves = [each[rows].detach().to(dtype).requires_grad_() for each in inputs]
        few = mask if mask.visible is None or len(mask.visible) == 1 else Mask(mask.visible[rows])
        weights = attention_weights(queries, KeysValues(keys, values), few, case.scale) * factors
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

    found, plain = (run(lambda: work(module, torch.float32)) for run in (run_twice, run_without))
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
    neighbours = [first.narrow(i, 1, size - 1) != first.narrow(i, 0, size - 1) for i, size in enumerate(first.shape)]
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


def compare_norm(case: Rows, kind: NormKind, half: torch.dtype) -> bool:
    """The norm of a float32 sum, in `half`, with the gradient of both uses of the sum."""
    x, skipped, received = (torch.randn(case.rows, case.width, device=DEVICE) for _ in range(3))
    norm, received = make_norm(kind, case.width, EPSILON).to(DEVICE), received.to(half)
    for weight in norm.parameters():
        torch.nn.init.normal_(weight)
    rows = slice(-1000, None) if x.numel() > 1 << 31 else slice(None)  # the norm's own gradients: of all rows

    def kernel() -> Sequence[Tensor]:
        leaf = (2 * x + 1).requires_grad_()
        with torch.autocast(x.device.type, half, enabled=half != torch.float32):
            assert isinstance(norm, torch.nn.LayerNorm | torch.nn.RMSNorm)
            skip, output = normalise_with_kernel(leaf, norm)
        assert output.dtype == half, output.dtype
        own = [*norm.parameters()] * (rows == slice(None))
        grads = torch.autograd.grad([skip, output], [leaf, *own], [skipped, received])
        return [output[rows].detach(), grads[0][rows], *grads[1:]]

    def formula(dtype: torch.dtype) -> Sequence[Tensor]:
        leaf, other = (2 * x[rows].to(dtype) + 1).requires_grad_(), copy.deepcopy(norm).to(dtype)
        output, own = other(leaf), [*other.parameters()] * (rows == slice(None))
        grads = torch.autograd.grad(
            [leaf + 0, output], [leaf, *own], [skipped[rows].to(dtype), received[rows].to(dtype)]
        )
        return [output.detach(), *grads]

    plain = [each.to(half) if number == 0 else each for number, each in enumerate(formula(torch.float32))]
    return report(f"{kind} norm {half}", vars(case), run_twice(kernel), plain, formula(torch.float64))


def compare_residual_sum(case: Rows, rate: float) -> bool:
    """A sum with dropout. The gradient of y shows which numbers were dropped: the output must have dropped the same."""
    x, y, received = (torch.randn(case.rows, case.width, device=DEVICE) for _ in range(3))
    y = y.to(PRECISIONS[1])
    y[y == 0] = received[received == 0] = 1
    rows = slice(-1000, None) if x.numel() > 1 << 31 else slice(None)

    def kernel() -> Sequence[Tensor]:
        torch.manual_seed(SEED)
        leaves = x.detach().requires_grad_(), y.detach().requires_grad_()
        total = add_dropped_with_kernel(leaves[0], leaves[1], rate)
        return [total.detach(), *torch.autograd.grad(total, leaves, received)]

    found = run_twice(kernel)
    kept = found[2] != 0
    expected = [
        (x[rows] + torch.where(kept[rows], y[rows].float() / (1 - rate), 0)).double(),
        received[rows].double(),
        torch.where(kept[rows], received[rows].double() / (1 - rate), 0),
    ]
    share = abs(float((~kept).double().mean()) - rate)
    assert share < 6 * math.sqrt(rate / kept.numel()) + 1e-9, f"{share} more or fewer numbers dropped than {rate}"
    few = slice(0, 1000)
    with with_kernels(True), torch.no_grad():
        another = add_dropped_with_kernel(torch.zeros_like(x[few]), y[few], rate) != 0
    flat = kept.flatten()
    # Neighbours, the same place of two blocks and of two programs, and two draws are independent.
    pairs = [(flat[lag:], flat[:-lag]) for lag in (1, _QUARTER, 4 * _QUARTER) if lag < len(flat)]
    for first, second in [*pairs, (kept[few], another)]:
        differ, expected_share = int((first != second).sum()) / first.numel(), 2 * rate * (1 - rate)
        limit = 6 * math.sqrt(expected_share / first.numel())
        assert abs(differ - expected_share) < limit, f"{differ} of the pairs differ, not {expected_share}"
    return report(
        f"residual sum {rate}",
        vars(case),
        [each[rows] for each in found],
        [each.to(found[i].dtype) for i, each in enumerate(expected)],
        expected,
    )


def compare_cross_entropy(case: Rows, smoothing: float, dtype: torch.dtype) -> bool:
    logits = (torch.randn(case.rows, case.width, device=DEVICE) * 3).to(dtype)
    labels = torch.randint(1, case.width, (case.rows,), device=DEVICE)
    if not smoothing:  # otherwise the loss is infinite
        logits[:, 3::11] = -math.inf
        labels[labels % 11 == 3] -= 1
    labels[::5] = IGNORED
    too_large = logits.numel() > 1 << 31  # for all rows in float64: only the gradients of the last rows are compared
    few = slice(-1000, None) if too_large else slice(None)

    def work(dtype: torch.dtype, rows: slice) -> Sequence[Tensor]:
        leaf = logits[rows].detach().to(dtype).requires_grad_()
        total = cross_entropy_sum(leaf, labels[rows], IGNORED, smoothing)
        return [torch.autograd.grad(total, leaf)[0][few], *[total.detach()[None]] * (not too_large)]

    found = run_twice(lambda: work(dtype, slice(None)))
    plain, expected = run_without(lambda: work(dtype, few)), work(torch.float64, few)
    return report(f"cross-entropy {dtype}, smoothing {smoothing}", vars(case), found, plain, expected)


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


def time_norm(case: Rows) -> None:
    """The norm before a sub-layer, in the precision of the sub-layer, and the sum of the gradients of both uses."""
    x = torch.randn(case.rows, case.width, device=DEVICE, requires_grad=True)
    residual = Residual(make_norm("layer", case.width, EPSILON), "pre").to(DEVICE).train()

    def work() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            skip, output = residual.enter(x)
        return skip + output.to(torch.bfloat16)

    time_work("norm bf16", vars(case), work, [x, *residual.parameters()])


def time_residual_sum(case: Rows) -> None:
    x = torch.randn(case.rows, case.width, device=DEVICE, requires_grad=True)
    y = torch.randn(case.rows, case.width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    residual = Residual(torch.nn.Identity(), "pre", 0.1).train()
    time_work("residual sum bf16, dropout 0.1", vars(case), lambda: residual.leave(x, y), [x, y])


def time_cross_entropy(case: Rows) -> None:
    logits = torch.randn(case.rows, case.width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(1, case.width, (case.rows,), device=DEVICE)

    def work() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return cross_entropy_sum(logits, labels, IGNORED, 0.1)[None]

    time_work("cross-entropy bf16", vars(case), work, [logits])


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
