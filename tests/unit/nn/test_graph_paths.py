"""The dynamic programmes over the paths of a graph equal enumeration, gradients included."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from attendo.nn.graph_paths import (
    align_to_graph,
    decode_joint_viterbi,
    follow_path,
    graph_log_likelihood,
    visit_probabilities,
)

NEVER = float("-inf")


def make_links(size: int, used: int | None = None) -> Tensor:
    """Random hop log-probabilities of a graph of `used` vertices, padded to `size`."""
    used = used or size
    links = torch.randn(size, size, dtype=torch.float64)
    forward = torch.ones(size, size).triu(1).bool()
    forward[:, used:] = False
    links = links.masked_fill(~forward, NEVER)
    return torch.where(forward.any(-1, keepdim=True), links.log_softmax(-1), NEVER)


def enumerate_paths(links: Tensor, inner: int, tokens: int) -> list[tuple[float, tuple[int, ...]]]:
    """The log-probability of the hops of every path with `tokens` inner vertices, and the path."""
    found = []
    for chosen in itertools.combinations(range(1, inner + 1), tokens):
        path = (0, *chosen, inner + 1)
        found.append((sum(float(links[u, v]) for u, v in itertools.pairwise(path)), chosen))
    return found


def score_paths(emissions: Tensor, links: Tensor, used: int) -> list[tuple[float, tuple[int, ...]]]:
    paths = enumerate_paths(links, used - 2, len(emissions))
    return [(hops + sum(float(emissions[i, v]) for i, v in enumerate(path)), path) for hops, path in paths]


def logsumexp(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).logsumexp(0)) if values else NEVER


@pytest.mark.parametrize("size", range(2, 8))
@pytest.mark.parametrize("tokens", range(5))
def test_the_graph_likelihood_sums_over_all_paths(size: int, tokens: int) -> None:
    torch.manual_seed(10 * size + tokens)
    links, emissions = make_links(size), torch.randn(tokens, size, dtype=torch.float64)
    num_tokens, num_vertices = torch.tensor([tokens]), torch.tensor([size])
    found = graph_log_likelihood(emissions[None], links[None], num_tokens, num_vertices)
    scored = score_paths(emissions, links, size)
    assert float(found) == pytest.approx(logsumexp([score for score, _ in scored]))
    if scored:
        best = align_to_graph(emissions[None], links[None], num_tokens, num_vertices)[0].tolist()
        assert tuple(best) == max(scored)[1]


def test_a_batch_of_graphs_equals_single_graphs() -> None:
    torch.manual_seed(1)
    tokens, used = [3, 0, 4, 1, 5], [7, 4, 8, 8, 5]  # the last target does not fit
    links = torch.stack([make_links(8, each) for each in used]).requires_grad_()
    emissions = torch.randn(5, 5, 8, dtype=torch.float64, requires_grad=True)
    total = graph_log_likelihood(emissions, links, torch.tensor(tokens), torch.tensor(used))
    paths = align_to_graph(emissions, links, torch.tensor(tokens), torch.tensor(used))
    grads = torch.autograd.grad(total[:4].sum(), [emissions, links])
    for row, (count, size) in enumerate(zip(tokens, used, strict=True)):
        alone = [emissions[row, :count, :size].detach()[None], links[row, :size, :size].detach()[None]]
        alone = [each.requires_grad_() for each in alone]
        expected = graph_log_likelihood(*alone, torch.tensor([count]), torch.tensor([size]))
        assert total[row].item() == pytest.approx(expected.item())
        if count + 2 > size:
            assert total[row].item() == NEVER
            continue
        emission_grad, link_grad = torch.autograd.grad(expected.sum(), alone)
        torch.testing.assert_close(grads[0][row, :count, :size], emission_grad[0])
        torch.testing.assert_close(grads[1][row, :size, :size], link_grad[0])
        assert paths[row, :count].tolist() == align_to_graph(*alone, *map(torch.tensor, ([count], [size])))[0].tolist()
        assert paths[row, count:].sum() == 0
    assert not grads[0][4].any()


def test_the_gradients_of_the_graph_are_exact() -> None:
    """Numbers from finite differences; entries of -inf are constants."""
    torch.manual_seed(2)
    tokens, vertices = torch.tensor([3, 2]), torch.tensor([7, 6])
    links = torch.stack([make_links(7), make_links(7, 6)])
    free = links > NEVER
    emissions = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)

    def likelihood(emissions: Tensor, hops: Tensor) -> Tensor:
        return graph_log_likelihood(emissions, links.masked_scatter(free, hops), tokens, vertices)

    hops = links[free].clone().requires_grad_()
    assert torch.autograd.gradcheck(likelihood, [emissions, hops])


def test_a_target_that_does_not_fit_has_gradient_zero() -> None:
    emissions = torch.zeros(1, 4, 5, requires_grad=True)
    links = make_links(5).float()[None].requires_grad_()
    total = graph_log_likelihood(emissions, links, torch.tensor([4]), torch.tensor([5]))
    assert total.item() == NEVER
    for grad in torch.autograd.grad(total.sum(), [emissions, links]):
        assert not grad.any()


def test_the_probabilities_of_all_targets_sum_to_1() -> None:
    torch.manual_seed(3)
    size, words = 6, 2
    links, said = make_links(size), torch.randn(size, words, dtype=torch.float64).log_softmax(-1)
    total = 0.0
    for tokens in range(size - 1):
        for target in itertools.product(range(words), repeat=tokens):
            emissions = torch.stack([said[:, word] for word in target]) if target else said.new_zeros(0, size)
            found = graph_log_likelihood(emissions[None], links[None], torch.tensor([tokens]), torch.tensor([size]))
            total += math.exp(found.item())
    assert total == pytest.approx(1)


def test_visit_probabilities_equal_enumeration() -> None:
    torch.manual_seed(4)
    size = 7
    links, expected = make_links(size), torch.zeros(size, dtype=torch.float64)
    for tokens in range(size - 1):
        for score, path in enumerate_paths(links, size - 2, tokens):
            expected[[0, *path, size - 1]] += math.exp(score)
    torch.testing.assert_close(visit_probabilities(links[None])[0], expected)
    assert expected[-1].item() == pytest.approx(1)


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_joint_viterbi_finds_the_best_path(penalty: float) -> None:
    torch.manual_seed(5)
    used = [7, 5, 3, 2]
    links = torch.stack([make_links(7, each) for each in used])
    scores = torch.randn(4, 7, dtype=torch.float64).abs().neg()
    marks = decode_joint_viterbi(scores, links, torch.tensor(used), torch.tensor([7] * 4), 7, penalty)
    for row, size in enumerate(used):
        found = []
        for tokens in range(1, size - 1):
            for hops, path in enumerate_paths(links[row], size - 2, tokens):
                found.append(((hops + float(scores[row, list(path)].sum())) / tokens**penalty, path))
        expected = max(found)[1] if found else ()
        assert tuple(marks[row].nonzero().flatten().tolist()) == expected


def test_joint_viterbi_keeps_the_maximum_length() -> None:
    """Each sentence has its own limit. A penalty of 5 favours long paths."""
    links = make_links(7).expand(2, -1, -1)
    marks = decode_joint_viterbi(torch.zeros(2, 7), links, torch.tensor([7, 7]), torch.tensor([2, 1]), 5, 5.0)
    assert marks.sum(-1).tolist() == [2, 1]


def test_a_path_is_followed_to_its_end() -> None:
    successors = torch.tensor([[2, 3, 5, 4, 5, 6, 6], [1, 2, 3, 4, 5, 6, 6], [6, 2, 3, 4, 5, 6, 6]])
    found = [row.nonzero().flatten().tolist() for row in follow_path(successors)]
    assert found == [[0, 2, 5, 6], list(range(7)), [0, 6]]
