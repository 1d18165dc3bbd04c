"""Next-token distributions of a graph equal those by enumeration of paths, and their divergence has exact gradients."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from attendo.nn import token_scores, triton_launch
from attendo.nn.graph_next_tokens import _has_kernel, next_token_divergence, reach_vertices
from attendo.nn.token_scores import emission_scores

PAD, BOS, EOS, VOCAB = 0, 1, 2, 6
SILENT = (PAD, BOS, EOS)
TARGETS = torch.tensor([[3, 4, 3], [5, 5, PAD]])
LENGTHS = torch.tensor([3, 2])
SIZES = torch.tensor([7, 6])  # vertices


def make_graph(rows: int = 2, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Return logits and links of graphs of 7 and 6 vertices, in turns."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn((rows, 7, VOCAB), generator=generator, dtype=torch.float64)
    scores = torch.randn((rows, 7, 7), generator=generator, dtype=torch.float64)
    vertex, sizes = torch.arange(7), SIZES.repeat(rows // 2)
    possible = (vertex[None, :] > vertex[:, None]) & (vertex < sizes[:, None])[:, None, :]
    scores = scores.masked_fill(~possible, -1e30).log_softmax(-1).masked_fill(~possible, float("-inf"))
    return logits.requires_grad_(), scores


def enumerate_prefixes(logits: Tensor, links: Tensor, size: int) -> dict[tuple[int, ...], float]:
    """Return the probability that the text begins with a prefix, by enumeration of all paths. EOS ends a text."""
    said = logits.detach()[:, [3, 4, 5]].softmax(-1)
    found: dict[tuple[int, ...], float] = {}
    for count in range(size - 1):
        for path in itertools.combinations(range(1, size - 1), count):
            hops = math.prod(float(links[u, v].exp()) for u, v in itertools.pairwise((0, *path, size - 1)))
            for words in itertools.product((3, 4, 5), repeat=count):
                share = hops * math.prod(float(said[v, word - 3]) for v, word in zip(path, words, strict=True))
                for end in range(count + 2):
                    prefix = (*words, EOS)[:end]
                    found[prefix] = found.get(prefix, 0.0) + share
    return found


def next_token_probabilities(logits: Tensor, links: Tensor) -> Tensor:
    """Return [R, N, V], by autograd's own operations."""
    targets, sizes = TARGETS.repeat(len(logits) // 2, 1), SIZES.repeat(len(logits) // 2)
    emissions = emission_scores(logits, targets, SILENT).transpose(1, 2)
    reached = reach_vertices(emissions, links, sizes)
    said = logits[..., 3:].softmax(-1)
    vertex = torch.arange(7)
    said = said * ((vertex > 0) & (vertex < sizes[:, None] - 1))[..., None]
    mixed = torch.nn.functional.pad(reached @ said, (3, 0))
    mixed[..., EOS] = reached.gather(2, (sizes - 1)[:, None, None].expand(-1, reached.shape[1], 1))[..., 0]
    return mixed


def test_next_tokens_equal_the_enumeration_of_paths() -> None:
    logits, links = make_graph()
    mixed = next_token_probabilities(logits, links).detach()
    torch.testing.assert_close(mixed.sum(-1)[0], torch.ones(4, dtype=torch.float64))
    for row, (target, length) in enumerate(zip(TARGETS.tolist(), LENGTHS.tolist(), strict=True)):
        prefixes = enumerate_prefixes(logits[row], links[row], int(SIZES[row]))
        for end in range(length + 1):
            prefix = tuple(target[:end])
            expected = [prefixes.get((*prefix, word), 0.0) / prefixes[prefix] for word in range(VOCAB)]
            assert mixed[row, end].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_the_divergence_and_its_gradients_equal_the_formula(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_scores, "_CHUNK_NUMBERS", chunk)
    logits, links = make_graph(rows=4)
    links.requires_grad_()
    inside = torch.arange(4) <= LENGTHS[:, None]
    targets, sizes = TARGETS.repeat(2, 1), SIZES.repeat(2)
    emissions = emission_scores(logits, targets, SILENT).transpose(1, 2)
    reached = reach_vertices(emissions, links, sizes)
    found = next_token_divergence(logits, reached, sizes, SILENT, EOS)
    p, q = next_token_probabilities(logits, links)[..., EOS:].clamp(min=1e-300).chunk(2)
    expected = ((p - q) * (p.log() - q.log())).sum(-1) / 2
    weights = torch.rand(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * inside
    torch.testing.assert_close(found[inside], expected[inside])
    assert float(found.detach()[inside].min()) > 1e-3
    gradients = torch.autograd.grad((found * weights).sum(), (logits, links))
    wanted = torch.autograd.grad((expected * weights).sum(), (logits, links))
    for gradient, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, other)


def test_a_target_that_does_not_fit_has_finite_gradients() -> None:
    """After four tokens the path of a graph of 6 vertices ends, and no vertex is left."""
    logits, links = make_graph(rows=4)
    links.requires_grad_()
    targets, sizes = torch.full((4, 8), 3), SIZES.repeat(2)
    reached = reach_vertices(emission_scores(logits, targets, SILENT).transpose(1, 2), links, sizes)
    next_token_divergence(logits, reached, sizes, SILENT, EOS).sum().backward()
    assert logits.grad is not None
    assert links.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert bool(links.grad.masked_fill(links == float("-inf"), 0).isfinite().all())


def test_the_divergence_of_half_precision_logits_is_computed_in_float32() -> None:
    logits, links = make_graph(rows=4)
    half = logits.detach().to(torch.bfloat16).requires_grad_()
    targets, sizes = TARGETS.repeat(2, 1), SIZES.repeat(2)
    reached = reach_vertices(emission_scores(half, targets, SILENT).transpose(1, 2), links.float(), sizes)
    found = next_token_divergence(half, reached, sizes, SILENT, EOS)
    found.sum().backward()
    assert found.dtype == torch.float32
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    assert bool(half.grad.any())


def test_autocast_does_not_change_the_divergence() -> None:
    """Probabilities in half precision would have 3 digits."""
    logits, links = make_graph(rows=4)
    targets, sizes = TARGETS.repeat(2, 1), SIZES.repeat(2)
    emissions, narrow = (
        emission_scores(logits.detach(), targets, SILENT).transpose(1, 2).float(),
        logits.detach().float(),
    )
    found = []
    for enabled in (False, True):
        leaf = narrow.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            reached = reach_vertices(emissions, links.float(), sizes)
            divergence = next_token_divergence(leaf, reached, sizes, SILENT, EOS)
        found.append((divergence.detach(), *torch.autograd.grad(divergence.sum(), leaf)))
    assert all(torch.equal(plain, cast) for plain, cast in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("steps", "vertices", "expected"), [(64, 128, True), (65, 128, False), (64, 129, False), (1, 512, True)]
)
def test_kernels_compute_what_fits_into_registers(
    steps: int, vertices: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_launch, "runs_kernels", lambda tensor: tensor.dtype != torch.float64)
    logits, reached = torch.zeros(2, vertices, VOCAB), torch.zeros(2, steps, vertices)
    assert _has_kernel(logits, reached) == expected
    assert not _has_kernel(logits.double(), reached)
