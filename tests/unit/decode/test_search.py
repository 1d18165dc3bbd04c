"""The search loop with bigram tables as the network: every number can be computed by hand."""

import math

import pytest
import torch
from search_rows import make_limits, trim_ids
from torch import Tensor
from toy_networks import (
    ENDLESS,
    SHORT,
    SILENT,
    A,
    B,
    Bigrams,
    BigramState,
    BigramTable,
    Trees,
    TreeState,
    log_probability,
)

from attendo.decode.beam import Beam
from attendo.decode.frontier import Frontier
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule, Stepper, Strategy, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.text import BOS, EOS, PAD, UNK


def search_frontiers(
    tables: list[BigramTable], limits: list[int], rules: tuple[Rule, ...] = (SuppressTokens(),)
) -> list[Frontier]:
    state = BigramState(torch.arange(len(tables)))
    return list(search(Bigrams(*tables), state, make_limits(torch.tensor(limits)), Greedy(), rules))


def test_toy_networks_and_strategies_implement_the_protocols() -> None:
    assert isinstance(Bigrams(SHORT), Stepper)
    assert isinstance(Greedy(), Strategy)
    assert isinstance(Beam(4), Strategy)
    assert isinstance(SuppressTokens(), Rule)


def test_greedy_takes_the_most_probable_token_each_time() -> None:
    last = search_frontiers([SHORT], [10])[-1]
    assert trim_ids(last).tolist() == [[BOS, A, B, EOS]]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.7 * 0.5))
    assert last.ended.tolist() == [True]
    assert last.cut.tolist() == [False]


def test_search_yields_the_frontier_after_every_token() -> None:
    frontiers = search_frontiers([SHORT], [10])
    assert [trim_ids(each)[0, 1:].tolist() for each in frontiers] == [[A], [A, B], [A, B, EOS]]
    assert [each.open.tolist() for each in frontiers] == [[True], [True], [False]]


@pytest.mark.parametrize(
    ("limit", "ids", "probability", "cut"),
    [
        (3, [A, B, EOS], 0.6 * 0.7 * 0.5, False),
        (2, [A, B, EOS], 0.6 * 0.7 * 0.5, False),  # exactly the limit, then EOS: not cut
        (1, [A], 0.6, True),  # the token beyond the limit is neither kept nor counted
        (0, [], 1.0, True),
    ],
)
def test_the_limit_is_exact(limit: int, ids: list[int], probability: float, cut: bool) -> None:
    last = search_frontiers([SHORT], [limit])[-1]
    assert trim_ids(last)[0, 1:].tolist() == ids
    assert last.log_probability.item() == pytest.approx(math.log(probability))
    assert last.cut.tolist() == [cut]
    assert last.ended.tolist() == [not cut]


def test_a_row_that_never_ends_is_cut_at_its_limit() -> None:
    last = search_frontiers([ENDLESS], [4])[-1]
    assert trim_ids(last)[0, 1:].tolist() == [B, B, B, B]
    assert last.log_probability.item() == pytest.approx(math.log(0.9 * 0.8**3))
    assert last.cut.tolist() == [True]


def test_each_row_has_its_own_limit() -> None:
    last = search_frontiers([SHORT, ENDLESS, SILENT, ENDLESS], [9, 5, 9, 2])[-1]
    assert trim_ids(last)[:, 1:].tolist() == [
        [A, B, EOS, PAD, PAD],
        [B, B, B, B, B],
        [EOS, PAD, PAD, PAD, PAD],
        [B, B, PAD, PAD, PAD],
    ]
    assert last.ended.tolist() == [True, False, True, False]
    assert last.cut.tolist() == [False, True, False, True]
    alone = [
        search_frontiers([table], [limit])[-1].log_probability.item()
        for table, limit in zip([SHORT, ENDLESS, SILENT, ENDLESS], [9, 5, 9, 2], strict=True)
    ]
    assert last.log_probability.tolist() == pytest.approx(alone)


def test_a_closed_row_does_not_change_during_the_search() -> None:
    frontiers = search_frontiers([SILENT, ENDLESS], [9, 6])
    assert len(frontiers) == 7
    for each in frontiers:
        assert each.ids[0, :2].tolist() == [BOS, EOS]
        assert each.ids[0, 2:].eq(PAD).all()
        assert each.log_probability[0].item() == pytest.approx(math.log(0.9))
        assert each.ended[0]
        assert not each.cut[0]


def test_pad_and_bos_are_never_chosen() -> None:
    table: BigramTable = {BOS: {PAD: 0.5, BOS: 0.3, A: 0.2}, A: {BOS: 0.6, PAD: 0.3, EOS: 0.1}}
    last = search_frontiers([table], [9])[-1]
    assert trim_ids(last).tolist() == [[BOS, A, EOS]]
    assert last.log_probability.item() == pytest.approx(math.log(0.2 * 0.1))


def test_the_unknown_token_may_be_chosen() -> None:
    last = search_frontiers([{BOS: {UNK: 0.9, EOS: 0.1}, UNK: {EOS: 1.0}}], [9])[-1]
    assert trim_ids(last).tolist() == [[BOS, UNK, EOS]]


def test_rules_combine_and_do_not_change_log_probabilities() -> None:
    last = search_frontiers([SHORT], [9], (SuppressTokens(), SuppressTokens((A,))))[-1]
    assert trim_ids(last).tolist() == [[BOS, B, EOS]]
    assert last.log_probability.isfinite().all()


class Swap(Greedy):
    """Greedy search with two rows per sentence, whose parents are swapped at every step."""

    width = 2

    def advance(self, frontier: Frontier, log_probs: Tensor, ruled: Tensor) -> tuple[Tensor | None, Frontier]:
        parents = torch.tensor([1, 0])
        if not frontier.length.any():  # first step: the two best tokens
            best = ruled.topk(2)
            return None, frontier.append(best.indices.diagonal(), best.values.diagonal(), torch.zeros(2))
        best = ruled[parents].max(dim=-1)
        return parents, frontier.select(parents, 2).append(best.indices, best.values, torch.zeros(2))


def test_rows_and_their_state_follow_their_parents() -> None:
    *_, last = search(Trees(), TreeState.start(7), make_limits(torch.tensor([4])), Swap(), [SuppressTokens()])
    rows = [[each for each in row[1:] if each != PAD] for row in last.ids.tolist()]
    assert rows[0] != rows[1]
    for ids, reported in zip(rows, last.log_probability.tolist(), strict=True):
        assert reported == pytest.approx(log_probability(7, ids), abs=1e-5)


@pytest.mark.parametrize("seed", [2**62, -(2**63), 2**63 - 1])
def test_any_seed_draws_a_sample(seed: int) -> None:
    starts = [Sampling(4, seed=each).start(make_limits(torch.tensor([3]))) for each in (seed, 1)]
    uniform = torch.full((4, 50), -4.0).log_softmax(-1)
    samples = [
        Sampling(4, seed=each).advance(start, uniform, uniform)[1]
        for each, start in zip((seed, 1), starts, strict=True)
    ]
    assert samples[0].last.tolist() != samples[1].last.tolist()
