"""Compares the Triton kernels of the ctc and graph losses with the PyTorch code that does the same, and times both.

    python benchmarks/parallel_loss.py [--compare-only]

On a GPU, every kernel runs on random numbers of several shapes, twice. The outputs must be equal bit for bit. They and
their gradients are compared with PyTorch in float64. A line of JSON has the largest difference of each of them, and the
same difference of PyTorch in the kernel's precision. Then both are timed as CUDA graphs: the median of the replays.
Without a GPU, only the comparison runs, on small shapes and with Triton's interpreter. The exit status is 1 if a
difference exceeds the tolerance and is several times as large as PyTorch's.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from statistics import median

import torch
from torch import Tensor

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported

from attendo.nn import triton_launch  # noqa: E402
from attendo.nn.ctc import align_to_ctc, ctc_log_likelihood  # noqa: E402
from attendo.nn.divergence import divergence  # noqa: E402
from attendo.nn.graph_next_tokens import next_token_divergence, reach_vertices  # noqa: E402
from attendo.nn.graph_paths import align_to_graph, graph_log_likelihood  # noqa: E402
from attendo.nn.token_scores import emission_scores  # noqa: E402

DEVICE = torch.device("cuda" if ON_GPU else "cpu")
NEVER = float("-inf")
SILENT = (0, 1, 2)
# Largest |difference| / (1 + |expected|). The interpreter truncates to bfloat16 instead of rounding.
TOLERANCES = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
TF32_TOLERANCE = 4e-3  # products of numbers with 10 bits of mantissa
# A difference above the tolerance is accepted up to this multiple of PyTorch's own. A posterior is a difference of sums
# of hundreds of log-probabilities, so in float32 both have an error that grows with the sums.
MULTIPLE = 4
REPLAYS = 50


@dataclass(frozen=True)
class Shape:
    batch: int
    positions: int  # or vertices
    tokens: int
    vocab: int = 50


SMALL_SCORES = [Shape(3, 4, 5), Shape(2, 3, 3, 9001), Shape(2, 2, 70, 37), Shape(2, 3, 0)]
LARGE_SCORES = [Shape(64, 60, 14, 8000), Shape(5, 20, 48, 32000), Shape(301, 900, 3, 8001)]  # the last one: over 2^31
SMALL_PASSES = [Shape(2, 4, 0), Shape(2, 2, 0, 9001), Shape(1, 1, 0, 7)]  # sentences, each in two passes
LARGE_PASSES = [Shape(64, 60, 0, 8000), Shape(5, 20, 0, 32000), Shape(150, 900, 0, 8001)]
SMALL_PREFIXES = [Shape(2, 8, 3), Shape(1, 20, 17, 130), Shape(1, 5, 0), Shape(1, 4, 6)]  # the last one does not fit
LARGE_PREFIXES = [Shape(64, 60, 14, 8000), Shape(5, 128, 60, 8001), Shape(5, 200, 30, 32000), Shape(9, 200, 60, 999)]
SMALL_GRAPHS = [Shape(6, 8, 3), Shape(3, 20, 7), Shape(3, 70, 4), Shape(1, 140, 2), Shape(2, 5, 0), Shape(3, 2, 1)]
LARGE_GRAPHS = [Shape(64, 60, 14), Shape(65, 64, 40), Shape(33, 200, 48), Shape(9, 257, 70), Shape(3, 1024, 90)]
SMALL_ROWS = [Shape(6, 8, 3), Shape(4, 12, 16), Shape(2, 24, 17), Shape(2, 5, 0), Shape(3, 1, 1)]
LARGE_ROWS = [Shape(64, 45, 14), Shape(33, 150, 48), Shape(9, 600, 255), Shape(5, 700, 600)]
TIMED_GRAPHS = [Shape(546, 60, 14, 8000), Shape(160, 200, 48, 8000), Shape(32, 1024, 120, 8000)]
TIMED_ROWS = [Shape(546, 45, 14, 8000), Shape(160, 150, 48, 8000)]

Work = Callable[[], Sequence[Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--compare-only", action="store_true", help="do not measure times")
    compare_only = parser.parse_args().compare_only
    if not triton_launch.HAS_TRITON:
        sys.exit("Triton is not installed: it comes with torch for GPUs")
    torch.manual_seed(1)
    passed = [
        *(compare_scores(shape, dtype) for shape in SMALL_SCORES + LARGE_SCORES * ON_GPU for dtype in TOLERANCES),
        *(compare_passes(shape, dtype) for shape in SMALL_PASSES + LARGE_PASSES * ON_GPU for dtype in TOLERANCES),
        *(compare_prefixes(shape, dtype) for shape in SMALL_PREFIXES + LARGE_PREFIXES * ON_GPU for dtype in TOLERANCES),
        *(compare_graphs(shape, holes) for shape in SMALL_GRAPHS + LARGE_GRAPHS * ON_GPU for holes in (False, True)),
        *(compare_rows(shape, holes) for shape in SMALL_ROWS + LARGE_ROWS * ON_GPU for holes in (False, True)),
    ]
    if ON_GPU and not compare_only:
        for shape in TIMED_GRAPHS:
            time_scores(shape)
            time_passes(shape)
            time_prefixes(shape)
            time_graphs(shape)
        for shape in TIMED_ROWS:
            time_scores(shape)
            time_rows(shape)
    sys.exit(0 if all(passed) else 1)


def compare_scores(shape: Shape, dtype: torch.dtype) -> bool:
    logits, ids = random_logits(shape, dtype)
    weights = torch.randn(shape.batch, shape.tokens, shape.positions, device=DEVICE)
    too_large = logits.numel() > 1 << 31  # for all sentences in float64
    rows = slice(-2, None) if too_large else slice(None)

    def work(logits: Tensor, ids: Tensor, weights: Tensor) -> list[Tensor]:
        logits = logits.detach().requires_grad_()
        scores = emission_scores(logits, ids, SILENT)
        # A graph reads the scores transposed, so their gradient is transposed as well.
        return [scores.detach(), *gradients(scores.transpose(1, 2), weights, [logits])]

    few = logits[rows], ids[rows], weights[rows]
    found = [each[rows] for each in run_twice(lambda: work(logits, ids, weights))]
    plain, expected = run_without(lambda: work(*few)), work(few[0].double(), ids[rows], few[2].double())
    return report(f"scores {dtype}", shape, found, plain, expected)


def compare_passes(shape: Shape, dtype: torch.dtype) -> bool:
    logits, weights = random_passes(shape, dtype), torch.randn(shape.batch, shape.positions, device=DEVICE)
    too_large = logits.numel() > 1 << 31
    rows = torch.arange(shape.batch, device=DEVICE)[slice(-2, None) if too_large else slice(None)]
    both = torch.cat((rows, rows + shape.batch))

    def work(logits: Tensor, weights: Tensor) -> list[Tensor]:
        logits = logits.detach().requires_grad_()
        found = divergence(logits, SILENT)
        return [found.detach(), *gradients(found, weights, [logits])]

    found, gradient = run_twice(lambda: work(logits, weights))
    plain = run_without(lambda: work(logits[both], weights[rows]))
    expected = work(logits[both].double(), weights[rows].double())
    return report(f"divergence {dtype}", shape, [found[rows], gradient[both]], plain, expected)


def compare_prefixes(shape: Shape, dtype: torch.dtype) -> bool:
    logits, reached, num_vertices = random_prefixes(shape, dtype)
    weights = torch.randn(shape.batch, shape.tokens + 1, device=DEVICE)

    def work(logits: Tensor, reached: Tensor, weights: Tensor) -> list[Tensor]:
        given = [each.detach().requires_grad_() for each in (logits, reached)]
        found = next_token_divergence(*given, num_vertices, SILENT, SILENT[-1])
        return [found.detach(), *gradients(found, weights, given)]

    found = run_twice(lambda: work(logits, reached, weights))
    plain = run_without(lambda: work(logits, reached, weights))
    expected = work(logits.double(), reached.double(), weights.double())
    tolerance = 0.0 if dtype == torch.float32 else TF32_TOLERANCE  # of the products for 16-bit logits
    return report(f"next tokens {dtype}", shape, found, plain, expected, tolerance)


def compare_graphs(shape: Shape, holes: bool) -> bool:
    emissions, links, *lengths = random_graphs(shape, holes)
    weights = torch.randn(shape.batch, device=DEVICE)

    def work(dtype: torch.dtype) -> list[Tensor]:
        given = [each.detach().to(dtype).requires_grad_() for each in (emissions, links)]
        totals = graph_log_likelihood(given[0].transpose(1, 2), given[1], *lengths)
        return [totals.detach(), *gradients(totals, weights.to(dtype), given)]

    found = run_twice(lambda: work(torch.float32))
    plain, expected = run_without(lambda: work(torch.float32)), work(torch.float64)
    passed = report(f"graph holes={holes}", shape, found, plain, expected)
    given = emissions.transpose(1, 2), links, *lengths
    wide = given[0].double(), links.double(), *lengths
    (path,) = run_twice(lambda: [align_to_graph(*given)])
    (plain_path,) = run_without(lambda: [align_to_graph(*given)])
    scored = [score_path(*wide, each) for each in (path, plain_path, align_to_graph(*wide))]
    return passed & report_alignment(f"path holes={holes}", shape, path, scored, expected[0])


def compare_rows(shape: Shape, holes: bool) -> bool:
    scores, *rest = random_rows(shape, holes)
    weights = torch.randn(shape.batch, device=DEVICE)

    def work(dtype: torch.dtype) -> list[Tensor]:
        given = scores.detach().to(dtype).requires_grad_()
        totals = ctc_log_likelihood(given[..., 0], given[..., 1:], *rest)
        return [totals.detach(), *gradients(totals, weights.to(dtype), [given])]

    found = run_twice(lambda: work(torch.float32))
    plain, expected = run_without(lambda: work(torch.float32)), work(torch.float64)
    passed = report(f"ctc holes={holes}", shape, found, plain, expected)

    def align(scores: Tensor) -> list[Tensor]:
        return [align_to_ctc(scores[..., 0], scores[..., 1:], *rest)]

    wide = scores.double()
    (row,), (plain_row,), (best,) = run_twice(lambda: align(scores)), run_without(lambda: align(scores)), align(wide)
    scored = [score_row(wide, rest[1], each) for each in (row, plain_row, best)]
    return passed & report_alignment(f"row holes={holes}", shape, row, scored, expected[0])


def random_logits(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Some logits are -inf. Some tokens occur several times, and some targets are padded."""
    logits = torch.randn(shape.batch, shape.positions, shape.vocab, device=DEVICE, dtype=dtype) * 3
    logits[:, :, 3::11] = NEVER
    ids = torch.randint(4, min(shape.vocab - 1, 5 + 3 * shape.tokens), (shape.batch, shape.tokens), device=DEVICE)
    ids[ids % 11 == 3] += 1
    ids[:, shape.tokens // 2 + 1 :: 3] = 0
    return logits, ids


def random_passes(shape: Shape, dtype: torch.dtype) -> Tensor:
    """Logits of two passes that are close to each other, as with dropout."""
    logits = torch.randn(shape.batch, shape.positions, shape.vocab, device=DEVICE) * 3
    return torch.cat([logits + torch.randn_like(logits) / 2 for _ in range(2)]).to(dtype)


def random_prefixes(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two passes, the vertices after each prefix of a target, and the sizes of the graphs."""
    emissions, links, _, num_vertices = (torch.cat((each, each)) for each in random_graphs(shape, False))
    noisy = (links + torch.randn_like(links) / 2).masked_fill(links == NEVER, -1e30).log_softmax(-1)
    reached = reach_vertices(emissions.transpose(1, 2), noisy.masked_fill(links == NEVER, NEVER), num_vertices)
    return random_passes(shape, dtype), reached, num_vertices


def random_graphs(shape: Shape, holes: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Graphs and targets of several sizes, among them an empty target and one that does not fit.

    With `holes`, some hops and some tokens are impossible.
    """
    size, some = shape.positions, torch.rand(2, shape.batch, device=DEVICE)
    num_vertices = (size - some[0] * (size // 3)).long()
    num_tokens = (shape.tokens * (1 - some[1] ** 2 / 2)).round().long()
    num_tokens[:1], num_vertices[:1] = shape.tokens, size
    if shape.batch > 2:
        num_tokens[1], num_vertices[2] = 0, 2
    vertex = torch.arange(size, device=DEVICE)
    possible = (vertex[None, :] > vertex[:, None]) & (vertex < num_vertices[:, None])[:, None, :]
    if holes:
        possible &= torch.rand(possible.shape, device=DEVICE) < 0.7
    links = torch.randn(possible.shape, device=DEVICE) * 3
    links = links.masked_fill(~possible, -1e30).log_softmax(-1).masked_fill(~possible, NEVER)
    emissions = torch.randn(shape.batch, size, shape.tokens, device=DEVICE) * 3 - 9
    if holes:
        emissions[torch.rand(emissions.shape, device=DEVICE) < 0.2] = NEVER
    return emissions, links, num_tokens, num_vertices


def random_rows(shape: Shape, holes: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The scores of the blank and of the tokens, and targets with equal neighbours. See `random_graphs`."""
    some = torch.rand(2, shape.batch, device=DEVICE)
    num_positions = (shape.positions - some[0] * (shape.positions // 3)).long()
    num_tokens = (shape.tokens * (1 - some[1] ** 2 / 2)).round().long()
    num_tokens[:1], num_positions[:1] = shape.tokens, shape.positions
    if shape.batch > 2:
        num_tokens[1], num_positions[2] = 0, 1
    labels = torch.randint(3, 6, (shape.batch, shape.tokens), device=DEVICE)
    scores = torch.randn(shape.batch, shape.positions, shape.tokens + 1, device=DEVICE) * 3 - 9
    if holes:
        scores[torch.rand(scores.shape, device=DEVICE) < 0.1] = NEVER
    return scores, labels, num_positions, num_tokens


def gradients(outputs: Tensor, weights: Tensor, inputs: list[Tensor]) -> Sequence[Tensor]:
    """The gradients of a weighted sum of the outputs, without those that are -inf."""
    return torch.autograd.grad(torch.where(outputs == NEVER, 0, outputs * weights).sum(), inputs)


def score_path(emissions: Tensor, links: Tensor, num_tokens: Tensor, num_vertices: Tensor, path: Tensor) -> Tensor:
    """The log-probability of one path of each graph."""
    size, batch = path.shape[1], torch.arange(len(path), device=DEVICE)[:, None]
    start = torch.zeros_like(batch)
    last = (num_vertices - 1)[:, None]
    inside = torch.arange(size + 1, device=DEVICE) <= num_tokens[:, None]
    is_end = torch.arange(size + 1, device=DEVICE) == num_tokens[:, None]
    to = torch.where(is_end, last, torch.cat((path, start), 1))
    hops = links[batch, torch.cat((start, path), 1), to].where(inside, 0).sum(-1)
    return hops + emissions.gather(2, path[..., None])[..., 0].where(inside[:, 1:], 0).sum(-1)


def score_row(scores: Tensor, num_positions: Tensor, row: Tensor) -> Tensor:
    """The log-probability of one row of each sentence."""
    inside = torch.arange(row.shape[1], device=DEVICE) < num_positions[:, None]
    return scores.gather(2, row[..., None])[..., 0].where(inside, 0).sum(-1)


def run_twice(work: Work) -> Sequence[Tensor]:
    """Run the work with kernels, and check that a second run gives the same bits."""
    with with_kernels(True):
        first = work()
        second = work() if ON_GPU else first  # the interpreter is sequential, and slow
    for each, other in zip(first, second, strict=True):
        assert torch.equal(each.nan_to_num(nan=12345.0), other.nan_to_num(nan=12345.0)), "a second run differs"
    return first


def run_without(work: Work) -> Sequence[Tensor]:
    """Run the work with PyTorch's operations."""
    with with_kernels(False):
        return work()


@contextmanager
def with_kernels(enabled: bool) -> Iterator[None]:
    """Let kernels compute, on a CPU with the interpreter, or leave everything to PyTorch."""
    usual = triton_launch.runs_kernels
    triton_launch.runs_kernels = lambda tensor: enabled and tensor.dtype != torch.float64
    try:
        yield
    finally:
        triton_launch.runs_kernels = usual


def report(
    name: str,
    shape: Shape,
    found: Sequence[Tensor],
    plain: Sequence[Tensor],
    expected: Sequence[Tensor],
    tolerance: float = 0.0,
) -> bool:
    """Print the largest difference of each output, and return whether all are small enough."""
    differences = [difference(*pair) for pair in zip(found, expected, strict=True)]
    usual = [difference(*pair) for pair in zip(plain, expected, strict=True)]
    limits = [
        max(TOLERANCES[each.dtype], tolerance, MULTIPLE * other if isfinite(other) else 0.0)
        for each, other in zip(plain, usual, strict=True)
    ]
    passed = all(each <= limit for each, limit in zip(differences, limits, strict=True))
    row = {"compare": name, **vars(shape), "kernel_differences": differences, "torch_differences": usual}
    print(json.dumps({**row, "passed": passed}), flush=True)
    return passed


def report_alignment(name: str, shape: Shape, found: Tensor, scored: Sequence[Tensor], totals: Tensor) -> bool:
    """Compare the scores of alignments: there may be several best ones. A target that does not fit has none."""
    fits = totals > NEVER
    kernel, plain, best = ([each[fits].float()] for each in scored)
    return report(name, shape, kernel, plain, best) & (not found[~fits].any())


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to numbers above 1; infinite if only one of the two is finite."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    finite = expected.isfinite()
    if not (torch.equal(found.isfinite(), finite) and torch.equal(found[~finite].double(), expected[~finite])):
        return float("inf")
    close = (found[finite] - expected[finite]).abs() / (1 + expected[finite].abs())
    return float(close.max()) if close.numel() else 0.0


def time_graphs(shape: Shape) -> None:
    emissions, links, *lengths = random_graphs(shape, False)
    given = [emissions.requires_grad_(), links.requires_grad_()]
    time_work("graph sum", shape, lambda: graph_log_likelihood(emissions.transpose(1, 2), links, *lengths), given)
    seen = emissions.detach().transpose(1, 2), links.detach()
    time_work("graph path", shape, lambda: align_to_graph(*seen, *lengths), [])


def time_rows(shape: Shape) -> None:
    scores, *rest = random_rows(shape, False)
    scores.requires_grad_()
    time_work("ctc sum", shape, lambda: ctc_log_likelihood(scores[..., 0], scores[..., 1:], *rest), [scores])
    seen = scores.detach()
    time_work("ctc row", shape, lambda: align_to_ctc(seen[..., 0], seen[..., 1:], *rest), [])


def time_scores(shape: Shape) -> None:
    logits, ids = random_logits(shape, torch.bfloat16)
    logits.requires_grad_()
    time_work("scores bf16", shape, lambda: emission_scores(logits, ids, SILENT), [logits])


def time_passes(shape: Shape) -> None:
    logits = random_passes(shape, torch.bfloat16).requires_grad_()
    time_work("divergence bf16", shape, lambda: divergence(logits, SILENT), [logits])


def time_prefixes(shape: Shape) -> None:
    logits, reached, num_vertices = random_prefixes(shape, torch.bfloat16)
    given = [logits.requires_grad_(), reached.requires_grad_()]
    time_work("next tokens bf16", shape, lambda: next_token_divergence(*given, num_vertices, SILENT, SILENT[-1]), given)


def time_work(name: str, shape: Shape, work: Callable[[], Tensor], inputs: list[Tensor]) -> None:
    """Time the work alone, and with the gradients of the inputs."""
    row = {"time": name, **vars(shape)}
    for kernels, system in ((False, "torch"), (True, "kernel")):
        with with_kernels(kernels):
            row[f"{system}_ms"] = milliseconds(lambda: [work().detach()])
            if inputs:
                row[f"{system}_with_gradients_ms"] = milliseconds(lambda: torch.autograd.grad(work().sum(), inputs))
    print(json.dumps(row), flush=True)


def milliseconds(work: Work) -> float:
    """The median time of a replay of a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return round(median(times), 4)


if __name__ == "__main__":
    main()
