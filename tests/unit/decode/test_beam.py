"""Beam search: against sums over all sequences, against greedy, and worked out by hand."""

import math
from itertools import pairwise, product
from typing import get_args

import pytest
import torch
from error_codes import has_code
from tables import (
    SHORT,
    SILENT,
    SPOKEN,
    VOCABULARY,
    A,
    B,
    Bigrams,
    Chances,
    Rows,
    Said,
    Trees,
    log_probability,
)
from torch import Tensor

from attendo.decode import search as loop
from attendo.decode.beam import Beam, Stop, is_on_host
from attendo.decode.frontier import NEG_INF, Frontier, RowLimits, zip_tensors
from attendo.decode.ranking import Ranking
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.strategies import Greedy
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD

PENALTIES = [0.0, 0.6, 1.0, 2.0]
LIMIT = 3


def grown(strategy: Strategy, limits: list[int], stepper: Trees | None = None) -> list[Frontier]:
    """What is told of one tree for each limit."""
    return list(
        search(stepper or Trees(), Said.nothing(*range(len(limits))), asked(limits), strategy, [SuppressTokens()])
    )


def found(strategy: Strategy, limits: list[int]) -> Frontier:
    return grown(strategy, limits)[-1].hypotheses


def by_hand(table: Chances, strategy: Strategy, limit: int) -> Frontier:
    *_, last = search(Bigrams(table), Rows(torch.arange(1)), asked([limit]), strategy, [SuppressTokens()])
    return last.hypotheses


def asked(limits: list[int]) -> RowLimits:
    return RowLimits.make(torch.tensor(limits))


def beam(width: int, length_penalty: float) -> Beam:
    return Beam(width, Ranking(length_penalty=length_penalty))


def scores(frontier: Frontier, length_penalty: float) -> Tensor:
    return Ranking(length_penalty=length_penalty).score(frontier)


def everything(tree: int, length_penalty: float) -> list[tuple[float, list[int]]]:
    """All sequences that end within the limit, best first, each with its score."""
    ended = [[*ids, EOS] for tokens in range(LIMIT + 1) for ids in product(SPOKEN, repeat=tokens)]
    scores = [log_probability(tree, ids) / len(ids) ** length_penalty for ids in ended]
    return sorted(zip(scores, ended, strict=True), reverse=True)


def sentence(frontier: Frontier, n: int, width: int) -> Frontier:
    return frontier.select(torch.arange(n * width, (n + 1) * width))


def spoken(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_D2_a_wide_beam_finds_the_best_of_all_sequences(length_penalty: float) -> None:
    width = VOCABULARY**2
    last = found(beam(width, length_penalty), [LIMIT] * 12)
    lengths = set()
    for tree in range(12):
        best, ids = everything(tree, length_penalty)[0]
        ours = sentence(last, tree, width)
        assert spoken(ours)[0] == ids
        assert scores(ours, length_penalty)[0].item() == pytest.approx(best, abs=1e-5)
        assert ours.ended[0]
        lengths.add(len(ids))
    assert len(lengths) > 1


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_a_beam_with_room_for_everything_ranks_everything(length_penalty: float) -> None:
    width = (len(SPOKEN) + 1) ** (LIMIT + 1)
    last = found(beam(width, length_penalty), [LIMIT] * 3)
    for tree in range(3):
        ranked = everything(tree, length_penalty)
        ours = sentence(last, tree, width)
        assert spoken(ours)[: len(ranked)] == [ids for _, ids in ranked]
        assert ours.ended[: len(ranked)].all()
        assert not ours.cut[: len(ranked)].any()
        assert (ours.log_probability[len(ranked) :] == NEG_INF).all()


def test_a_wide_beam_is_never_less_probable_than_greedy() -> None:
    width = VOCABULARY**2
    greedy = found(Greedy(), [LIMIT] * 30)
    best = found(beam(width, 0.0), [LIMIT] * 30).select(torch.arange(0, 30 * width, width))
    ended = greedy.ended
    assert ended.sum() > 10
    assert (best.log_probability[ended] >= greedy.log_probability[ended] - 1e-6).all()
    assert (best.log_probability[ended] > greedy.log_probability[ended] + 1e-3).any()


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_D2_a_beam_of_one_is_greedy_bit_for_bit(length_penalty: float) -> None:
    limits = [n % 7 for n in range(60)]
    greedy, narrow = grown(Greedy(), limits), grown(beam(1, length_penalty), limits)
    assert len(greedy) == len(narrow)
    assert len({*greedy[-1].cut.tolist()}) == 2
    for name in ("ids", "length", "log_probability", "penalty", "ended", "cut"):
        assert torch.equal(getattr(greedy[-1], name), getattr(narrow[-1].hypotheses, name))


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [2, 5])
def test_D1_a_sentence_has_the_same_hypotheses_alone_and_among_others(width: int) -> None:
    limits = [(5 * n) % 9 + 1 for n in range(24)]
    together = found(Beam(width), limits)
    for tree, limit in enumerate(limits):
        *_, last = search(Trees(), Said.nothing(tree), asked([limit]), Beam(width), [SuppressTokens()])
        alone, among = last.hypotheses, sentence(together, tree, width)
        assert spoken(alone) == spoken(among)
        assert torch.equal(alone.log_probability, among.log_probability)
        assert torch.equal(alone.cut, among.cut)


@pytest.mark.parametrize("width", [2, 5])
def test_D3_the_log_probability_told_is_that_of_the_tokens(width: int) -> None:
    last = found(Beam(width), [4] * 10)
    for row, (ids, told) in enumerate(zip(spoken(last), last.log_probability.tolist(), strict=True)):
        assert told == pytest.approx(log_probability(row // width, ids), abs=1e-5)


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_hypotheses_come_best_first_those_that_ended_before_those_that_were_cut(length_penalty: float) -> None:
    last = found(beam(4, length_penalty), [3] * 40)
    ranked = scores(last, length_penalty).tolist()
    mixed = 0
    for first in range(0, 160, 4):
        cut = last.cut[first : first + 4].tolist()
        assert cut == sorted(cut)
        mixed += len({*cut}) == 2
        for one in range(first, first + 3):
            assert last.cut[one] != last.cut[one + 1] or ranked[one] >= ranked[one + 1]
        assert len({*map(tuple, spoken(last)[first : first + 4])}) == 4
    assert mixed > 5


def test_every_row_is_ended_or_cut_in_the_end_and_stays_within_its_limit() -> None:
    limits = [n % 6 for n in range(30)]
    last = found(Beam(3), limits)
    real = last.log_probability != NEG_INF
    assert (last.ended ^ last.cut)[real].all()
    for row, ids in enumerate(spoken(last)):
        if last.log_probability[row] != NEG_INF:
            assert len(ids) - ids.count(EOS) <= limits[row // 3]
            assert ids.count(EOS) == last.ended[row]


def test_a_step_finishes_what_ends_among_the_best_and_the_best_others_go_on() -> None:
    """Two rows: a .6 b .3 (eos .1 comes third) · ab .42, b-eos .15 finishes, ba .12 goes on · ab-eos .21 finishes."""
    beam = Beam(2, stop="first")
    told = list(search(Bigrams(SHORT), Rows(torch.arange(1)), asked([9]), beam, [SuppressTokens()]))
    told[-1] = told[-1].hypotheses
    assert [spoken(each) for each in told] == [[[A], [B]], [[A, B], [B, A]], [[A, B, EOS], [B, EOS]]]
    assert told[1].log_probability.exp().tolist() == pytest.approx([0.42, 0.12])
    assert told[1].open.all()
    assert told[2].log_probability.exp().tolist() == pytest.approx([0.21, 0.15])
    assert scores(told[2], 1.0).tolist() == pytest.approx([math.log(0.21) / 3, math.log(0.15) / 2])
    assert told[2].ended.all()


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, [EOS]), (1.0, [A, B, EOS])])
def test_the_length_penalty_decides_between_short_and_long(length_penalty: float, best: list[int]) -> None:
    """eos alone has probability 0.4, a b eos has 0.3186: less in all, more a token."""
    table: Chances = {BOS: {A: 0.59, EOS: 0.4, B: 0.01}, A: {B: 0.9, A: 0.1}, B: {EOS: 0.6, B: 0.4}}
    last = by_hand(table, Beam(2, Ranking(length_penalty=length_penalty), stop="first"), 9)
    assert spoken(last)[0] == best
    assert sorted(last.log_probability.exp().tolist()) == pytest.approx([0.3186, 0.4])


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_a_settled_beam_does_not_lose_the_best_to_what_ended_before_it(length_penalty: float) -> None:
    """eos .06 and a-eos .054 fill a beam of two before a b eos, .729, has ended."""
    table: Chances = {
        BOS: {A: 0.9, EOS: 0.06, B: 0.04},
        A: {B: 0.9, EOS: 0.06, A: 0.04},
        B: {EOS: 0.9, A: 0.06, B: 0.04},
    }
    first = by_hand(table, Beam(2, Ranking(length_penalty=length_penalty), stop="first"), 9)
    settled = by_hand(table, Beam(2, Ranking(length_penalty=length_penalty), stop="settled"), 9)
    assert sorted(spoken(first)) == [[EOS], [A, EOS]]
    assert spoken(settled)[0] == [A, B, EOS]
    assert settled.log_probability[0].exp().item() == pytest.approx(0.729)


@pytest.mark.parametrize(("length_penalty", "steps", "second"), [(0.0, 4, [B, EOS]), (1.0, 5, [A, B, A, B, EOS])])
def test_a_settled_beam_stops_when_what_goes_on_scores_no_better(
    length_penalty: float, steps: int, second: list[int]
) -> None:
    """a b eos .21 and b eos .15 are finished after three steps, but a b a has .168 and goes on to a b a b, .1176.

    By the sum that settles it. By the average, -0.54, it is still better than b eos, -0.95, and ends as a b a b eos,
    -0.57, which a b a b a, -0.61, cannot better.
    """
    told = list(search(Bigrams(SHORT), Rows(torch.arange(1)), asked([9]), beam(2, length_penalty), [SuppressTokens()]))
    assert len(told) == steps
    assert spoken(told[-1].hypotheses) == [[A, B, EOS], second]


def test_rows_without_an_end_are_cut_at_the_limit() -> None:
    table: Chances = {BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}}
    last = by_hand(table, Beam(2), 2)
    assert last.trim_ids().tolist() == [[BOS, A, A], [BOS, B, A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.42, 0.24])
    assert last.cut.all()
    assert not last.ended.any()


def test_what_ended_stands_before_what_was_cut_even_where_it_is_less_probable() -> None:
    going = {A: 0.6, B: 0.39, EOS: 0.01}
    last = by_hand({BOS: {A: 0.8, EOS: 0.2}, A: going, B: going}, Beam(2), 2)
    assert spoken(last) == [[EOS], [A, A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.2, 0.48])
    assert last.cut.tolist() == [False, True]


def test_a_full_row_that_ends_is_not_cut_as_well() -> None:
    last = by_hand(SHORT, Beam(2), 1)
    assert spoken(last) == [[B, EOS], [A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.15, 0.6])
    assert last.cut.tolist() == [False, True]


def test_where_little_may_be_said_the_other_rows_stay_without_a_hypothesis() -> None:
    rules = [SuppressTokens(), SuppressTokens(SPOKEN)]
    told = list(search(Bigrams(SHORT, SHORT), Rows(torch.arange(2)), asked([9, 9]), Beam(3), rules))
    assert len(told) == 1
    assert spoken(told[0].hypotheses)[::3] == [[EOS], [EOS]]
    assert told[0].hypotheses.log_probability.tolist() == pytest.approx([math.log(0.1), NEG_INF, NEG_INF] * 2)


def test_an_end_that_is_forbidden_finishes_nothing() -> None:
    """Rows to spare: all of the three tokens and then, among what has no probability at all, eos."""
    rules = [SuppressTokens(), SuppressTokens((EOS,))]
    *_, last = (each.hypotheses for each in search(Bigrams(SHORT), Rows(torch.arange(1)), asked([1]), Beam(8), rules))
    assert not last.ended.any()
    assert last.log_probability.isfinite().sum() == len(SPOKEN)
    assert sorted(spoken(last)[:3]) == [[token] for token in SPOKEN]


def test_a_sentence_that_is_done_does_not_change_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)  # nobody leaves
    tables = Bigrams(SILENT, {BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}})
    told = list(search(tables, Rows(torch.arange(2)), asked([1, 8]), Beam(2), [SuppressTokens()]))
    done = [sentence(each.hypotheses, 0, 2) for each in told[1:]]
    assert len(done) == 8
    for each in done:
        assert spoken(each) == spoken(done[0])
        assert torch.equal(each.log_probability, done[0].log_probability)
        assert torch.equal(each.ended, done[0].ended)
        assert torch.equal(each.cut, done[0].cut)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_sentences_that_are_done_leave_the_batch_and_nothing_else_changes(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [n % 12 for n in range(40)]
    stepper = Trees()
    leaving = grown(strategy, limits, stepper)
    assert stepper.rows[0] == 40 * strategy.width
    assert stepper.rows[-1] < 10 * strategy.width
    assert all(rows % strategy.width == 0 for rows in stepper.rows)
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)
    staying = grown(strategy, limits)
    assert len(leaving) == len(staying)
    for one, other in zip(leaving, staying, strict=True):
        for name in ("length", "log_probability", "penalty", "ended", "cut"):
            assert torch.equal(getattr(one.hypotheses, name), getattr(other.hypotheses, name))
        assert spoken(one.hypotheses) == spoken(other.hypotheses)


@pytest.mark.parametrize("stop", get_args(Stop))
@pytest.mark.parametrize("free_end", [False, True], ids=["end", "free"])
def test_looking_whether_anything_ends_changes_nothing(
    stop: Stop, free_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, limits = Beam(3, stop=stop, free_end=free_end), [0, 2, 5, 9]
    looking = grown(strategy, limits)
    monkeypatch.setattr("attendo.decode.beam.is_on_host", lambda _: False)
    blind = grown(strategy, limits)
    assert len(looking) == len(blind)
    for one, other in zip(looking, blind, strict=True):
        zip_tensors(one, other, same)


def test_nobody_looks_at_what_is_elsewhere_or_not_computed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_on_host(torch.ones(1))
    assert not is_on_host(torch.ones(1, device="meta"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not is_on_host(torch.ones(1))


def same(one: Tensor, other: Tensor) -> Tensor:
    assert torch.equal(one, other)
    return one


@pytest.mark.parametrize("width", [0, -1])
def test_a_beam_without_rows_is_refused(width: int) -> None:
    with pytest.raises(UsageError, check=has_code("beam_width_below_one", width=width)):
        Beam(width)


def test_rules_hold_in_every_row() -> None:
    forbidden = [SuppressTokens(), SuppressTokens((A,))]
    *_, last = (
        each.hypotheses for each in search(Trees(), Said.nothing(*range(9)), asked([5] * 9), Beam(4), forbidden)
    )
    real = last.log_probability != NEG_INF
    assert real.sum() > 20
    assert not (last.ids[real] == A).any()


def test_rules_see_the_rows_that_they_judge() -> None:
    """No token twice in a row: which tokens that forbids, the row's own last token alone can tell."""

    class NoRepeat(Rule):
        def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
            return log_probs.scatter(1, frontier.last, NEG_INF)

    rules = [SuppressTokens(), NoRepeat()]
    *_, last = (
        each.hypotheses for each in search(Trees(), Said.nothing(*range(12)), asked([3, 8] * 6), Beam(4), rules)
    )
    for ids, told in zip(spoken(last), last.log_probability.tolist(), strict=True):
        assert told == NEG_INF or all(one != other for one, other in pairwise(ids))
