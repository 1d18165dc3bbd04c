"""The generation loop, with tables of bigrams in place of a network: every number can be worked out by hand."""

import math

import pytest
import torch
from tables import ENDLESS, SHORT, SILENT, A, B, Bigrams, Chances, Rows
from torch import Tensor

from attendo.decode.rules import Forbid
from attendo.decode.search import Frontier, Rule, Stepper, Strategy, search
from attendo.decode.strategies import Beam, Greedy
from attendo.text import BOS, EOS, PAD, UNK


def frontiers(tables: list[Chances], limits: list[int], rules: tuple[Rule, ...] = (Forbid(),)) -> list[Frontier]:
    state = Rows(torch.arange(len(tables)))
    return list(search(Bigrams(*tables), state, torch.tensor(limits), Greedy(), rules))


def test_a_table_of_bigrams_is_all_that_the_loop_needs() -> None:
    assert isinstance(Bigrams(SHORT), Stepper)
    assert isinstance(Greedy(), Strategy)
    assert isinstance(Beam(4), Strategy)
    assert isinstance(Forbid(), Rule)


def test_greedy_takes_the_most_probable_token_each_time() -> None:
    last = frontiers([SHORT], [10])[-1]
    assert last.ids.tolist() == [[BOS, A, B, EOS]]
    assert last.log_probability.item() == pytest.approx(math.log(0.6 * 0.7 * 0.5))
    assert last.ended.tolist() == [True]
    assert last.cut.tolist() == [False]


def test_the_frontier_is_told_after_every_token() -> None:
    told = frontiers([SHORT], [10])
    assert [each.ids[0, 1:].tolist() for each in told] == [[A], [A, B], [A, B, EOS]]
    assert [each.open.tolist() for each in told] == [[True], [True], [False]]


@pytest.mark.parametrize(
    ("limit", "ids", "probability", "cut"),
    [
        (3, [A, B, EOS], 0.6 * 0.7 * 0.5, False),
        (2, [A, B, EOS], 0.6 * 0.7 * 0.5, False),  # as many tokens as the limit, then eos: nothing is lost
        (1, [A, PAD], 0.6, True),  # the token beyond the limit is neither kept nor counted
        (0, [PAD], 1.0, True),
    ],
)
def test_the_limit_is_exact(limit: int, ids: list[int], probability: float, cut: bool) -> None:
    last = frontiers([SHORT], [limit])[-1]
    assert last.ids[0, 1:].tolist() == ids
    assert last.log_probability.item() == pytest.approx(math.log(probability))
    assert last.cut.tolist() == [cut]
    assert last.ended.tolist() == [not cut]


def test_a_row_that_never_ends_is_cut_at_its_limit() -> None:
    last = frontiers([ENDLESS], [4])[-1]
    assert last.ids[0, 1:].tolist() == [B, B, B, B, PAD]
    assert last.log_probability.item() == pytest.approx(math.log(0.9 * 0.8**3))
    assert last.cut.tolist() == [True]


def test_each_row_goes_its_own_way_to_its_own_limit() -> None:
    last = frontiers([SHORT, ENDLESS, SILENT, ENDLESS], [9, 5, 9, 2])[-1]
    assert last.ids[:, 1:].tolist() == [
        [A, B, EOS, PAD, PAD, PAD],
        [B, B, B, B, B, PAD],
        [EOS, PAD, PAD, PAD, PAD, PAD],
        [B, B, PAD, PAD, PAD, PAD],
    ]
    assert last.ended.tolist() == [True, False, True, False]
    assert last.cut.tolist() == [False, True, False, True]
    alone = [
        frontiers([table], [limit])[-1].log_probability.item()
        for table, limit in zip([SHORT, ENDLESS, SILENT, ENDLESS], [9, 5, 9, 2], strict=True)
    ]
    assert last.log_probability.tolist() == pytest.approx(alone)


def test_a_closed_row_does_not_change_while_others_go_on() -> None:
    told = frontiers([SILENT, ENDLESS], [9, 6])
    assert len(told) == 7
    for each in told:
        assert each.ids[0, :2].tolist() == [BOS, EOS]
        assert each.ids[0, 2:].eq(PAD).all()
        assert each.log_probability[0].item() == pytest.approx(math.log(0.9))
        assert each.ended[0]
        assert not each.cut[0]


def test_pad_and_bos_are_never_chosen_and_the_rest_keeps_its_probability() -> None:
    table: Chances = {BOS: {PAD: 0.5, BOS: 0.3, A: 0.2}, A: {BOS: 0.6, PAD: 0.3, EOS: 0.1}}
    last = frontiers([table], [9])[-1]
    assert last.ids.tolist() == [[BOS, A, EOS]]
    assert last.log_probability.item() == pytest.approx(math.log(0.2 * 0.1))


def test_the_unknown_token_may_be_chosen() -> None:
    last = frontiers([{BOS: {UNK: 0.9, EOS: 0.1}, UNK: {EOS: 1.0}}], [9])[-1]
    assert last.ids.tolist() == [[BOS, UNK, EOS]]


def test_rules_are_laid_one_over_the_other_and_leave_the_numbers_they_were_given() -> None:
    last = frontiers([SHORT], [9], (Forbid(), Forbid((A,))))[-1]
    assert last.ids.tolist() == [[BOS, B, EOS]]
    log_probs = torch.zeros(1, 6)
    Forbid()(log_probs, last)
    assert not log_probs.any()


class Swap:
    """Two rows that change places before they go on greedily: a beam in which each follows the other."""

    width = 1

    def start(self, limit: Tensor) -> Frontier:
        return Frontier.start(limit)

    def advance(self, frontier: Frontier, log_probs: Tensor) -> tuple[Tensor | None, Frontier]:
        if frontier.limit.size(0) < 2:
            return Greedy().advance(frontier, log_probs)
        parents = torch.tensor([1, 0])
        best = log_probs[parents].max(dim=-1)
        return parents, frontier.select(parents).grow(best.indices, best.values)


def test_rows_and_their_state_follow_their_parents() -> None:
    state = Rows(torch.arange(2))
    *_, last = search(Bigrams(SHORT, ENDLESS), state, torch.tensor([9, 3]), Swap(), [Forbid()])
    by_length = sorted(last.ids.tolist())
    assert by_length == [[BOS, A, B, EOS, PAD], [BOS, B, B, B, PAD]]
