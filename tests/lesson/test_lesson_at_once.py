"""The code of chapter 13: sums over rows and paths equal enumeration, and the text about the fits is true."""

import itertools
import math

import at_once
import pytest
import torch
from at_once import A, B, ctc, fit, graph, hop_probabilities, independent, mean_loss, start
from torch.nn import functional as F


def test_the_probability_of_ctc_is_that_of_torch() -> None:
    logits = start(4, 3, seed=5).detach()
    for said in ((A, B), (B, A), (A, A), (A,), (A, B, A)):
        loss = F.ctc_loss(
            logits.log_softmax(-1)[:, None], torch.tensor([said]), torch.tensor([4]), torch.tensor([len(said)]), blank=2
        )
        assert ctc(logits)(said).item() == pytest.approx(math.exp(-loss.item() * len(said)), rel=1e-5)


def test_a_target_that_does_not_fit_has_probability_0() -> None:
    assert ctc(start(2, 3, seed=5))((A, A)).item() == 0


def test_the_probability_of_a_graph_is_the_sum_over_its_paths() -> None:
    tokens, links = start(6, 2, seed=6).detach(), start(6, 6, seed=7).detach()
    emits, hops = tokens.softmax(-1), hop_probabilities(links)
    torch.testing.assert_close(hops[:-1].sum(-1), torch.ones(5))
    for said in ((), (A,), (A, B), (B, A, B)):
        total = 0.0
        for inner in itertools.combinations(range(1, 5), len(said)):
            path = (0, *inner, 5)
            steps = math.prod(hops[one, other].item() for one, other in itertools.pairwise(path))
            total += steps * math.prod(emits[vertex, token].item() for vertex, token in zip(inner, said, strict=True))
        assert graph(tokens, links)(said).item() == pytest.approx(total, rel=1e-5)


def test_one_distribution_per_position_cannot_be_better_than_log_4() -> None:
    """The best pair of distributions, found on a grid instead of by descent."""
    grid = torch.linspace(0.01, 0.99, 99)
    one, other = torch.meshgrid(grid, grid, indexing="ij")
    losses = -((one * (1 - other)).log() + ((1 - one) * other).log()) / 2
    assert losses.min().item() == pytest.approx(math.log(4), abs=1e-4)
    logits = start(2, 2, seed=0)
    assert fit([logits], mean_loss(independent(logits))) == pytest.approx(math.log(4), abs=1e-3)


def test_runs_are_merged_before_blanks_are_dropped() -> None:
    assert at_once.merge([A, A, 2, A, B], 2) == (A, A, B)
