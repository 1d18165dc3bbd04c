"""Expected bigrams of a graph equal enumeration of all paths and outputs, and have finite gradients."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from test_graph_paths import NEVER, make_links
from torch import Tensor

from attendo.nn.graph_ngrams import bigram_score, match_bigrams
from attendo.nn.graph_paths import visit_probabilities

BOS, EOS = "BOS", "EOS"
TARGETS = ([0, 1, 2], [], [2], [1, 1, 1], [0, 1, 0, 1], [0, 0], [2, 1, 2, 1, 2, 1, 2])  # the last may not fit


def make_graph(size: int, words: int, seed: int) -> tuple[Tensor, Tensor]:
    """Links [L, L] and log-probabilities of the words at each vertex [L, V]."""
    torch.manual_seed(seed)
    return make_links(size), torch.randn(size, words, dtype=torch.float64).mul(2).log_softmax(-1)


def list_bigrams(tokens: list[int] | tuple[int, ...]) -> list[tuple[object, object]]:
    return list(itertools.pairwise([BOS, *tokens, EOS]))


def enumerate_outputs(links: Tensor, said: Tensor) -> Iterator[tuple[float, tuple[int, ...]]]:
    """The probability and the tokens of every path with every choice of words."""
    last, words = len(links) - 1, said.shape[1]
    for count in range(last):
        for inner in itertools.combinations(range(1, last), count):
            hops = math.exp(sum(float(links[u, v]) for u, v in itertools.pairwise((0, *inner, last))))
            for tokens in itertools.product(range(words), repeat=count):
                yield hops * math.exp(sum(float(said[v, w]) for v, w in zip(inner, tokens, strict=True))), tokens


def match(links: Tensor, said: Tensor, target: list[int], function=match_bigrams):  # type: ignore[no-untyped-def]
    """Call the function for one sentence."""
    ids = torch.tensor([target], dtype=torch.long)
    emissions = said[:, target].T[None]
    return function(emissions, links[None], ids, torch.tensor([len(target)]), torch.tensor([len(links)]))


@pytest.mark.parametrize("size", [2, 3, 5, 6])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_matches_and_hops_equal_enumeration(size: int, target: list[int]) -> None:
    links, said = make_graph(size, 3, seed=size)
    expected, mean_bigrams = Counter[tuple[object, object]](), 0.0
    total = 0.0
    for probability, tokens in enumerate_outputs(links, said):
        total += probability
        mean_bigrams += probability * (len(tokens) + 1)
        for bigram in list_bigrams(tokens):
            expected[bigram] += probability
    assert total == pytest.approx(1)
    matched, hops = match(links, said, target)
    wanted = sum(min(expected[bigram], count) for bigram, count in Counter(list_bigrams(target)).items())
    assert matched.item() == pytest.approx(wanted)
    assert hops.item() == pytest.approx(mean_bigrams)
    brevity = math.exp(min(0.0, 1 - (len(target) + 1) / mean_bigrams))
    score = match(links, said, target, bigram_score).item()
    assert score == pytest.approx(brevity * wanted / mean_bigrams)
    assert 0 <= score <= 1


def test_a_repeated_bigram_matches_as_often_as_the_target_has_it() -> None:
    """The graph surely says three times the same word, so (word, word) is there twice."""
    links, said = sure_graph(5), torch.zeros(5, 1, dtype=torch.float64)
    found = {len(target): match(links, said, target)[0].item() for target in ([0], [0, 0], [0, 0, 0], [0] * 4)}
    assert found == pytest.approx({1: 2, 2: 3, 3: 4, 4: 4})


def sure_graph(size: int) -> Tensor:
    """Links of a graph whose only path visits all vertices."""
    links = torch.full((size, size), NEVER, dtype=torch.float64)
    links.diagonal(1).fill_(0)
    return links


@pytest.mark.parametrize("target", [[1, 0, 2], [1, 1, 1], []], ids=str)
def test_a_graph_that_surely_says_the_target_has_score_1(target: list[int]) -> None:
    said = torch.full((len(target) + 2, 3), NEVER, dtype=torch.float64)
    for vertex, word in enumerate(target, start=1):
        said[vertex, word] = 0
    links = sure_graph(len(target) + 2)
    matched, hops = match(links, said, target)
    assert (matched.item(), hops.item()) == (len(target) + 1, len(target) + 1)
    assert match(links, said, target, bigram_score).item() == 1


def test_a_short_output_has_a_brevity_penalty() -> None:
    """An output of 3 tokens has 4 bigrams. All but the last match a target of 7 tokens."""
    links, said = sure_graph(5), torch.full((5, 8), NEVER, dtype=torch.float64)
    said[[1, 2, 3], [1, 2, 3]] = 0
    score = match(links, said, [1, 2, 3, 4, 5, 6, 7], bigram_score).item()
    assert score == pytest.approx(math.exp(1 - 8 / 4) * 3 / 4)
    assert match(links, said, [1, 2], bigram_score).item() == pytest.approx(2 / 4)  # a long output has none


def make_batch() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Arguments of `match_bigrams`, padded with large scores, random hops and ids that the targets have too."""
    torch.manual_seed(5)
    targets, used = [[0, 1, 2], [], [1, 1, 1, 1], [2], [0, 1, 0, 1, 0]], [7, 4, 8, 3, 8]
    ids = torch.tensor([each + [0, 1, 0, 1, 0, 1][len(each) :] for each in targets])
    emissions = torch.full((5, 6, 8), 1000.0, dtype=torch.float64)
    for row, (target, size) in enumerate(zip(targets, used, strict=True)):
        said = torch.randn(size, 3, dtype=torch.float64).log_softmax(-1)
        emissions[row, : len(target), :size] = said[:, target].T
    links = torch.stack([make_links(8, size) for size in used])
    return emissions, links, ids, torch.tensor([len(each) for each in targets]), torch.tensor(used)


def test_padding_changes_nothing() -> None:
    """A batch of several lengths equals single sentences, gradients included."""
    emissions, links, ids, num_tokens, num_vertices = make_batch()
    emissions.requires_grad_()
    links.requires_grad_()
    scores = bigram_score(emissions, links, ids, num_tokens, num_vertices)
    grads = torch.autograd.grad(scores.sum(), [emissions, links])
    assert all(bool(grad.isfinite().all()) for grad in grads)
    for row, (count, size) in enumerate(zip(num_tokens.tolist(), num_vertices.tolist(), strict=True)):
        alone = [emissions[row, :count, :size].detach()[None], links[row, :size, :size].detach()[None]]
        alone = [each.requires_grad_() for each in alone]
        lengths = num_tokens[row, None], num_vertices[row, None]
        expected = bigram_score(*alone, ids[row, None, :count], *lengths)
        assert scores[row].item() == pytest.approx(expected.item())
        single = [grad[0] for grad in torch.autograd.grad(expected.sum(), alone)]
        torch.testing.assert_close(grads[0][row, :count, :size], single[0])
        torch.testing.assert_close(grads[1][row, :size, :size], single[1])
        assert not grads[0][row, count:].any()
        assert not grads[0][row, :, size:].any()
        assert not grads[1][row, size:].any()
        assert not grads[1][row, :, size:].any()


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_are_exact(seed: int) -> None:
    """Numbers from finite differences; entries of -inf are constants. Targets of repeated bigrams, and a short one."""
    torch.manual_seed(seed)
    ids = torch.tensor([[0, 0, 0, 0], [0, 1, 2, 0]])
    num_tokens, num_vertices = torch.tensor([4, 1]), torch.tensor([7, 6])
    links = torch.stack([make_links(7), make_links(7, 6)])
    free = links > NEVER
    emissions = torch.randn(2, 4, 7, dtype=torch.float64).sub(1).requires_grad_()

    def scores(emissions: Tensor, hops: Tensor) -> Tensor:
        return bigram_score(emissions, links.masked_scatter(free, hops), ids, num_tokens, num_vertices)

    hops = links[free].clone().requires_grad_()
    assert torch.autograd.gradcheck(scores, [emissions, hops])


def test_impossible_hops_and_tokens_have_gradient_zero() -> None:
    """In float32, and also if the graph can say nothing of the target."""
    links = sure_graph(5).float()[None].requires_grad_()
    emissions = torch.full((1, 3, 5), NEVER, requires_grad=True)
    score = bigram_score(emissions, links, torch.tensor([[0, 1, 1]]), torch.tensor([3]), torch.tensor([5]))
    grads = torch.autograd.grad(score.sum(), [emissions, links])
    assert score.item() == 0
    assert not grads[0].any()
    assert bool(grads[1].isfinite().all())
    assert not grads[1][links == NEVER].any()


def test_half_precision_passes_compute_it_in_float32() -> None:
    emissions, links, *others = make_batch()
    expected = bigram_score(emissions, links, *others)
    with torch.autocast("cpu", torch.bfloat16):
        found = bigram_score(emissions.float(), links.float(), *others)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)


def test_float32_is_exact_enough_for_long_graphs() -> None:
    torch.manual_seed(6)
    links = torch.stack([make_links(120), make_links(120, 100)])
    emissions, ids = torch.randn(2, 40, 120, dtype=torch.float64).sub(3), torch.randint(4, 9, (2, 40))
    found = []
    for dtype in (torch.float64, torch.float32):
        values = [emissions.to(dtype).requires_grad_(), links.to(dtype).requires_grad_()]
        score = bigram_score(*values, ids, torch.tensor([40, 31]), torch.tensor([120, 100]))
        found.append([each.detach().double() for each in (score, *torch.autograd.grad(score.sum(), values))])
    for wide, narrow in zip(*found, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=1e-4, atol=1e-6 * float(wide.abs().max()))


def test_it_needs_no_values_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it can be captured as a CUDA graph. Tensors of the meta device have shapes and no values."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # which the meta device does not have
    emissions, links, *others = (each.to("meta") for each in make_batch())
    emissions.requires_grad_()
    links.requires_grad_()
    score = bigram_score(emissions, links, *others)
    grads = torch.autograd.grad(score.sum(), [emissions, links])
    assert [tuple(each.shape) for each in (score, *grads)] == [(5,), (5, 6, 8), (5, 8, 8)]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9, 64, 65])
def test_visits_of_long_paths_are_counted(size: int) -> None:
    """The number of rounds is enough for the longest path, and gradients are finite."""
    links = sure_graph(size)[None].requires_grad_()
    visits = visit_probabilities(links)
    assert bool((visits == 1).all())
    (grad,) = torch.autograd.grad(visits.sum(), links)
    assert bool(grad.isfinite().all())
