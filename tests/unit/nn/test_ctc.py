"""The dynamic programmes of CTC equal enumeration and torch's CTC, gradients included."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attendo.nn.ctc import align_to_ctc, ctc_log_likelihood, ctc_token_log_probs

NEVER = float("-inf")


def logsumexp(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).logsumexp(0)) if values else NEVER


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
