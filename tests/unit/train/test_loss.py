"""The loss, against the formula computed by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attendo.data.batch import Example, collate
from attendo.model.transformer import Transformer
from attendo.text import PAD
from attendo.train.loss import cross_entropy_sum, divergence_sum, training_loss

VOCABULARY = 7


@pytest.fixture
def logits(generator: torch.Generator) -> Tensor:
    return 2 * torch.randn(3, 5, VOCABULARY, generator=generator)


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    """Token ids; two rows end with padding."""
    labels = torch.randint(1, VOCABULARY, (3, 5), generator=generator)
    labels[1, 3:] = labels[2, 1:] = PAD
    return labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_the_formula_summed_over_tokens(logits: Tensor, labels: Tensor, smoothing: float) -> None:
    expected = 0.0
    for row, label_row in zip(logits.tolist(), labels.tolist(), strict=True):
        for scores, label in zip(row, label_row, strict=True):
            if label == PAD:
                continue
            total = sum(math.exp(score) for score in scores)
            log_probabilities = [math.log(math.exp(score) / total) for score in scores]
            # The label gets 1 - ε, and ε is spread evenly over the vocabulary.
            expected -= (1 - smoothing) * log_probabilities[label]
            expected -= smoothing * sum(log_probabilities) / VOCABULARY
    assert cross_entropy_sum(logits, labels, smoothing).item() == pytest.approx(expected, rel=1e-5)


def test_the_default_label_smoothing_is_0(logits: Tensor, labels: Tensor) -> None:
    assert torch.equal(cross_entropy_sum(logits, labels), cross_entropy_sum(logits, labels, 0.0))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_E32_padding_columns_do_not_change_the_loss(logits: Tensor, labels: Tensor, smoothing: float) -> None:
    wider_logits = torch.cat((logits, torch.full((3, 4, VOCABULARY), 50.0)), dim=1).requires_grad_()
    wider_labels = torch.cat((labels, torch.full((3, 4), PAD)), dim=1)
    loss = cross_entropy_sum(wider_logits, wider_labels, smoothing)
    assert torch.equal(loss, cross_entropy_sum(logits, labels, smoothing))
    loss.backward()
    assert wider_logits.grad is not None
    assert not wider_logits.grad[wider_labels == PAD].any()
    assert wider_logits.grad[wider_labels != PAD].any(-1).all()


def test_E24_the_loss_takes_logits_not_probabilities(logits: Tensor, labels: Tensor) -> None:
    torch.testing.assert_close(cross_entropy_sum(logits + 5.0, labels), cross_entropy_sum(logits, labels))
    right = cross_entropy_sum(50.0 * torch.nn.functional.one_hot(labels, VOCABULARY), labels)
    assert right.item() == pytest.approx(0.0, abs=1e-6)
    assert cross_entropy_sum(logits.softmax(-1), labels).item() != pytest.approx(
        cross_entropy_sum(logits, labels).item(), rel=0.01
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_of_rows_sum_to_the_loss_of_the_batch(logits: Tensor, labels: Tensor, smoothing: float) -> None:
    row_losses = sum(cross_entropy_sum(logits[n : n + 1], labels[n : n + 1], smoothing) for n in range(3))
    torch.testing.assert_close(row_losses, cross_entropy_sum(logits, labels, smoothing))


def test_a_sentence_has_the_same_loss_in_any_batch(small_network: Callable[..., Transformer]) -> None:
    network = small_network()
    short, long = Example([5, 6], [7]), Example([5, 6, 7, 8, 9], [9, 10, 11, 12, 13])
    losses = []
    for examples in ([short], [long], [short, long]):
        batch = collate(examples)
        losses.append(cross_entropy_sum(network(batch.source_ids, batch.target_ids, batch.source_mask), batch.labels))
    torch.testing.assert_close(losses[0] + losses[1], losses[2])


def test_the_divergence_matches_the_formula() -> None:
    """Two tokens and one padding position, with a vocabulary of two."""
    p, q = [[0.5, 0.5], [0.9, 0.1]], [[0.25, 0.75], [0.2, 0.8]]
    first = (
        torch.tensor([[*p, [1.0, 0.0]]]).clamp(min=1e-9).log() + 3.0
    )  # logits equal log-probabilities up to a constant
    second = torch.tensor([[*q, [0.0, 1.0]]]).clamp(min=1e-9).log()
    expected = sum(
        (
            sum(a * math.log(a / b) for a, b in zip(x, y, strict=True))
            for x, y in (*zip(p, q, strict=True), *zip(q, p, strict=True))
        )
    )
    found = divergence_sum(torch.cat((first, second)), torch.tensor([[1, 1, PAD]]))
    assert float(found) == pytest.approx(expected / 2, rel=1e-5)


def test_the_divergence_is_symmetric_and_zero_for_equal_inputs(logits: Tensor, labels: Tensor) -> None:
    other = logits.flip(0)
    assert float(divergence_sum(logits.repeat(2, 1, 1), labels)) == 0.0
    found, swapped = (divergence_sum(torch.cat(pair), labels) for pair in ((logits, other), (other, logits)))
    torch.testing.assert_close(found, swapped)
    assert float(found) > 0


def test_r_drop_compares_each_row_with_its_second_pass(logits: Tensor, labels: Tensor) -> None:
    """The mean of the losses of both passes, and half of the weighted divergence."""
    other = logits.flip(-1)
    found = training_loss(torch.cat((logits, other)), labels, 0.1, r_drop=3.0)
    alone = sum(cross_entropy_sum(each, labels, 0.1) for each in (logits, other)) / 2
    apart = sum(
        divergence_sum(torch.stack((first, second)), label[None])
        for first, second, label in zip(logits, other, labels, strict=True)
    )
    torch.testing.assert_close(found, alone + 1.5 * apart)
