"""The dynamic programmes over alignments equal enumeration, gradients included."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attendo.nn import alignments
from attendo.nn.alignments import (
    align_to_ctc,
    align_to_graph,
    ctc_log_likelihood,
    ctc_token_log_probs,
    decode_joint_viterbi,
    emission_scores,
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


def merge_runs(row: tuple[int, ...]) -> list[int]:
    return [word for word, _ in itertools.groupby(row) if word]


@pytest.mark.parametrize("positions", range(1, 7))
@pytest.mark.parametrize("target", [[], [1], [1, 1], [1, 2], [2, 1, 2], [1, 1, 2, 2]])
def test_ctc_sums_over_all_rows(positions: int, target: list[int]) -> None:
    torch.manual_seed(positions)
    log_probs = torch.randn(positions, 3, dtype=torch.float64).log_softmax(-1)
    labels = torch.tensor(target, dtype=torch.long)[None]
    lengths = torch.tensor([positions]), torch.tensor([len(target)])
    inputs = log_probs[None, :, 0], log_probs[:, labels[0]][None], labels
    rows = [
        (sum(float(log_probs[j, word]) for j, word in enumerate(row)), row)
        for row in itertools.product(range(3), repeat=positions)
        if merge_runs(row) == target
    ]
    assert ctc_log_likelihood(*inputs, *lengths).item() == pytest.approx(logsumexp([score for score, _ in rows]))
    if rows:
        aligned = align_to_ctc(*inputs, *lengths)[0].tolist()
        assert tuple(target[token - 1] if token else 0 for token in aligned) == max(rows)[1]


def test_ctc_equals_torch_with_its_gradients() -> None:
    torch.manual_seed(6)
    positions, tokens = torch.tensor([12, 9, 7, 1]), torch.tensor([5, 4, 0, 1])
    logits = torch.randn(4, 12, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(1, 6, (4, 5))
    labels[0, 1] = labels[0, 0]
    log_probs = logits.log_softmax(-1)
    emissions = log_probs.gather(2, labels[:, None].expand(-1, 12, -1))
    found = ctc_log_likelihood(log_probs[:, :, 0], emissions, labels, positions, tokens)
    expected = -functional.ctc_loss(log_probs.transpose(0, 1), labels, positions, tokens, reduction="none")
    torch.testing.assert_close(found, expected)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    ours, theirs = (
        torch.autograd.grad((each * weights).sum(), logits, retain_graph=True)[0] for each in (found, expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_the_gradients_of_ctc_are_exact() -> None:
    torch.manual_seed(7)
    labels, positions, tokens = torch.tensor([[1, 1, 2], [2, 1, 1]]), torch.tensor([6, 4]), torch.tensor([3, 2])
    blanks = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    emissions = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)

    def likelihood(blanks: Tensor, emissions: Tensor) -> Tensor:
        return ctc_log_likelihood(blanks, emissions, labels, positions, tokens)

    assert torch.autograd.gradcheck(likelihood, [blanks, emissions])


def test_a_batch_of_ctc_alignments_equals_single_ones() -> None:
    torch.manual_seed(8)
    labels, positions, tokens = torch.tensor([[1, 1, 2], [2, 1, 1], [1, 2, 1]]), [8, 4, 6], [3, 2, 0]
    blanks, emissions = torch.randn(3, 8), torch.randn(3, 8, 3)
    rows = align_to_ctc(blanks, emissions, labels, torch.tensor(positions), torch.tensor(tokens))
    for row, (used, count) in enumerate(zip(positions, tokens, strict=True)):
        alone = align_to_ctc(
            blanks[row : row + 1, :used],
            emissions[row : row + 1, :used, :count],
            labels[row : row + 1, :count],
            torch.tensor([used]),
            torch.tensor([count]),
        )
        assert rows[row, :used].tolist() == alone[0].tolist()
        assert not rows[row, used:].any()


def test_a_target_that_does_not_fit_ctc_has_gradient_zero() -> None:
    blanks, emissions = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 2, 2, requires_grad=True)
    total = ctc_log_likelihood(blanks, emissions, torch.tensor([[1, 1]]), torch.tensor([2]), torch.tensor([2]))
    assert total.item() == NEVER
    for grad in torch.autograd.grad(total.sum(), [blanks, emissions]):
        assert not grad.any()


def test_ctc_token_probabilities_are_sums_over_rows() -> None:
    """P(token | tokens before) = P(rows that begin with both) / P(rows that begin with the tokens before)."""
    torch.manual_seed(9)
    positions, targets = [5, 3, 4], [[1, 1, 2], [2, 1], []]
    log_probs = torch.randn(3, 5, 3, dtype=torch.float64).log_softmax(-1)
    labels = torch.tensor([[*target, *[0] * (3 - len(target))] for target in targets])
    emissions = log_probs.gather(2, labels[:, None].expand(-1, 5, -1))
    lengths = torch.tensor(positions), torch.tensor([len(target) for target in targets])
    found = ctc_token_log_probs(log_probs[:, :, 0], emissions, labels, *lengths)
    for row, (used, target) in enumerate(zip(positions, targets, strict=True)):
        rows = {
            words: math.exp(sum(float(log_probs[row, j, word]) for j, word in enumerate(words)))
            for words in itertools.product(range(3), repeat=used)
        }
        begins = [
            sum(share for words, share in rows.items() if merge_runs(words)[:count] == target[:count])
            for count in range(len(target) + 1)
        ]
        ends = sum(share for words, share in rows.items() if merge_runs(words) == target)
        expected = [later / earlier for earlier, later in itertools.pairwise([*begins, ends])]
        assert found[row, : len(target) + 1].exp().tolist() == pytest.approx(expected)
        assert not found[row, len(target) + 1 :].any()


@pytest.mark.parametrize("sentences_at_once", [1, 2, 5])
def test_emission_scores_and_their_gradients_equal_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, sentences_at_once: int
) -> None:
    monkeypatch.setattr(alignments, "_CHUNK_NUMBERS", sentences_at_once * 4 * 7)
    logits = torch.randn(5, 4, 7, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[3, 4, 4], [5, 6, 3], [1, 1, 1], [6, 5, 4], [3, 3, 5]])  # equal tokens share a gradient
    silent = torch.tensor([0, 2])
    plain = logits.index_fill(2, silent, NEVER).log_softmax(-1).gather(2, ids[:, None].expand(-1, 4, -1))
    found = emission_scores(logits, ids, (0, 2))
    torch.testing.assert_close(found, plain)
    weights = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), logits), torch.autograd.grad((plain * weights).sum(), logits)
    )


def test_emission_scores_of_half_precision_logits_are_float32() -> None:
    logits = torch.randn(2, 3, 50).bfloat16().requires_grad_()
    found = emission_scores(logits, torch.tensor([[4], [5]]), (0,))
    (grad,) = torch.autograd.grad(found.sum(), logits)
    assert (found.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
    wide = logits.detach().float()
    wide[..., 0] = NEVER
    torch.testing.assert_close(found, wide.log_softmax(-1).gather(2, torch.tensor([[[4]] * 3, [[5]] * 3])))
