"""Beam search compared with all sequences, with greedy search, and with results computed by hand."""

import math
from itertools import pairwise, product
from typing import get_args

import pytest
import torch
from error_codes import has_code
from search_rows import make_limits, trim_ids
from torch import Tensor
from toy_networks import (
    SHORT,
    SILENT,
    TEXT_TOKENS,
    VOCABULARY,
    A,
    B,
    Bigrams,
    BigramState,
    BigramTable,
    Trees,
    TreeState,
    log_probability,
)

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


def search_steps(strategy: Strategy, limits: list[int], network: Trees | None = None) -> list[Frontier]:
    """All frontiers of a search with one tree per limit."""
    return list(
        search(
            network or Trees(), TreeState.start(*range(len(limits))), row_limits(limits), strategy, [SuppressTokens()]
        )
    )


def search_hypotheses(strategy: Strategy, limits: list[int]) -> Frontier:
    return search_steps(strategy, limits)[-1].hypotheses


def search_table(table: BigramTable, strategy: Strategy, limit: int) -> Frontier:
    *_, last = search(Bigrams(table), BigramState(torch.arange(1)), row_limits([limit]), strategy, [SuppressTokens()])
    return last.hypotheses


def row_limits(limits: list[int]) -> RowLimits:
    return make_limits(torch.tensor(limits))


def beam(width: int, length_penalty: float) -> Beam:
    return Beam(width, Ranking(length_penalty=length_penalty))


def scores(frontier: Frontier, length_penalty: float) -> Tensor:
    return Ranking(length_penalty=length_penalty).score(frontier)


def rank_all_sequences(tree: int, length_penalty: float) -> list[tuple[float, list[int]]]:
    """All sequences that end within the limit, best first, each with its score."""
    ended = [[*ids, EOS] for tokens in range(LIMIT + 1) for ids in product(TEXT_TOKENS, repeat=tokens)]
    scores = [log_probability(tree, ids) / len(ids) ** length_penalty for ids in ended]
    return sorted(zip(scores, ended, strict=True), reverse=True)


def select_sentence(frontier: Frontier, n: int, width: int) -> Frontier:
    return frontier.select(torch.arange(n * width, (n + 1) * width))


def token_ids(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_D2_a_wide_beam_finds_the_best_of_all_sequences(length_penalty: float) -> None:
    width = VOCABULARY**2
    last = search_hypotheses(beam(width, length_penalty), [LIMIT] * 12)
    lengths = set()
    for tree in range(12):
        best, ids = rank_all_sequences(tree, length_penalty)[0]
        ours = select_sentence(last, tree, width)
        assert token_ids(ours)[0] == ids
        assert scores(ours, length_penalty)[0].item() == pytest.approx(best, abs=1e-5)
        assert ours.ended[0]
        lengths.add(len(ids))
    assert len(lengths) > 1


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_a_beam_wide_enough_for_all_sequences_ranks_them_all(length_penalty: float) -> None:
    width = (len(TEXT_TOKENS) + 1) ** (LIMIT + 1)
    last = search_hypotheses(beam(width, length_penalty), [LIMIT] * 3)
    for tree in range(3):
        ranked = rank_all_sequences(tree, length_penalty)
        ours = select_sentence(last, tree, width)
        assert token_ids(ours)[: len(ranked)] == [ids for _, ids in ranked]
        assert ours.ended[: len(ranked)].all()
        assert not ours.cut[: len(ranked)].any()
        assert (ours.log_probability[len(ranked) :] == NEG_INF).all()


def test_a_wide_beam_is_never_less_probable_than_greedy() -> None:
    width = VOCABULARY**2
    greedy = search_hypotheses(Greedy(), [LIMIT] * 30)
    best = search_hypotheses(beam(width, 0.0), [LIMIT] * 30).select(torch.arange(0, 30 * width, width))
    ended = greedy.ended
    assert ended.sum() > 10
    assert (best.log_probability[ended] >= greedy.log_probability[ended] - 1e-6).all()
    assert (best.log_probability[ended] > greedy.log_probability[ended] + 1e-3).any()


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_D2_a_beam_of_one_is_greedy_bit_for_bit(length_penalty: float) -> None:
    limits = [n % 7 for n in range(60)]
    greedy, narrow = search_steps(Greedy(), limits), search_steps(beam(1, length_penalty), limits)
    assert len(greedy) == len(narrow)
    assert len({*greedy[-1].cut.tolist()}) == 2
    for name in ("ids", "length", "log_probability", "penalty", "ended", "cut"):
        assert torch.equal(getattr(greedy[-1], name), getattr(narrow[-1].hypotheses, name))


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [2, 5])
def test_D1_a_sentence_has_the_same_hypotheses_alone_and_among_others(width: int) -> None:
    limits = [(5 * n) % 9 + 1 for n in range(24)]
    together = search_hypotheses(Beam(width), limits)
    for tree, limit in enumerate(limits):
        *_, last = search(Trees(), TreeState.start(tree), row_limits([limit]), Beam(width), [SuppressTokens()])
        alone, among = last.hypotheses, select_sentence(together, tree, width)
        assert token_ids(alone) == token_ids(among)
        assert torch.equal(alone.log_probability, among.log_probability)
        assert torch.equal(alone.cut, among.cut)


@pytest.mark.parametrize("width", [2, 5])
def test_D3_the_reported_log_probability_is_that_of_the_tokens(width: int) -> None:
    last = search_hypotheses(Beam(width), [4] * 10)
    for row, (ids, reported) in enumerate(zip(token_ids(last), last.log_probability.tolist(), strict=True)):
        assert reported == pytest.approx(log_probability(row // width, ids), abs=1e-5)


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_hypotheses_are_sorted_ended_before_cut_then_by_score(length_penalty: float) -> None:
    last = search_hypotheses(beam(4, length_penalty), [3] * 40)
    ranked = scores(last, length_penalty).tolist()
    mixed = 0
    for first in range(0, 160, 4):
        cut = last.cut[first : first + 4].tolist()
        assert cut == sorted(cut)
        mixed += len({*cut}) == 2
        for one in range(first, first + 3):
            assert last.cut[one] != last.cut[one + 1] or ranked[one] >= ranked[one + 1]
        assert len({*map(tuple, token_ids(last)[first : first + 4])}) == 4
    assert mixed > 5


def test_every_row_is_ended_or_cut_within_its_limit() -> None:
    limits = [n % 6 for n in range(30)]
    last = search_hypotheses(Beam(3), limits)
    real = last.log_probability != NEG_INF
    assert (last.ended ^ last.cut)[real].all()
    for row, ids in enumerate(token_ids(last)):
        if last.log_probability[row] != NEG_INF:
            assert len(ids) - ids.count(EOS) <= limits[row // 3]
            assert ids.count(EOS) == last.ended[row]


def test_a_step_finishes_top_eos_rows_and_continues_the_rest() -> None:
    """Step 1: a .6, b .3 (eos .1 is third). Step 2: ab .42, b eos .15 finishes, ba .12. Step 3: ab eos .21 finishes."""
    beam = Beam(2, stop="first")
    frontiers = list(search(Bigrams(SHORT), BigramState(torch.arange(1)), row_limits([9]), beam, [SuppressTokens()]))
    frontiers[-1] = frontiers[-1].hypotheses
    assert [token_ids(each) for each in frontiers] == [[[A], [B]], [[A, B], [B, A]], [[A, B, EOS], [B, EOS]]]
    assert frontiers[1].log_probability.exp().tolist() == pytest.approx([0.42, 0.12])
    assert frontiers[1].open.all()
    assert frontiers[2].log_probability.exp().tolist() == pytest.approx([0.21, 0.15])
    assert scores(frontiers[2], 1.0).tolist() == pytest.approx([math.log(0.21) / 3, math.log(0.15) / 2])
    assert frontiers[2].ended.all()


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, [EOS]), (1.0, [A, B, EOS])])
def test_the_length_penalty_decides_between_short_and_long(length_penalty: float, best: list[int]) -> None:
    """eos has probability 0.4, a b eos has 0.3186: lower in total, higher per token."""
    table: BigramTable = {BOS: {A: 0.59, EOS: 0.4, B: 0.01}, A: {B: 0.9, A: 0.1}, B: {EOS: 0.6, B: 0.4}}
    last = search_table(table, Beam(2, Ranking(length_penalty=length_penalty), stop="first"), 9)
    assert token_ids(last)[0] == best
    assert sorted(last.log_probability.exp().tolist()) == pytest.approx([0.3186, 0.4])


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_a_settled_beam_keeps_a_better_hypothesis_that_ends_later(length_penalty: float) -> None:
    """eos .06 and a eos .054 fill a beam of two before a b eos, .729, ends."""
    table: BigramTable = {
        BOS: {A: 0.9, EOS: 0.06, B: 0.04},
        A: {B: 0.9, EOS: 0.06, A: 0.04},
        B: {EOS: 0.9, A: 0.06, B: 0.04},
    }
    first = search_table(table, Beam(2, Ranking(length_penalty=length_penalty), stop="first"), 9)
    settled = search_table(table, Beam(2, Ranking(length_penalty=length_penalty), stop="settled"), 9)
    assert sorted(token_ids(first)) == [[EOS], [A, EOS]]
    assert token_ids(settled)[0] == [A, B, EOS]
    assert settled.log_probability[0].exp().item() == pytest.approx(0.729)


@pytest.mark.parametrize(("length_penalty", "steps", "second"), [(0.0, 4, [B, EOS]), (1.0, 5, [A, B, A, B, EOS])])
def test_a_settled_beam_stops_when_open_rows_cannot_win(length_penalty: float, steps: int, second: list[int]) -> None:
    """a b eos .21 and b eos .15 are finished after three steps. a b a has .168 and continues to a b a b, .1176.

    By the sum, it cannot win any more. By the average, -0.54, it beats b eos, -0.95. It ends as a b a b eos, -0.57,
    and a b a b a, -0.61, cannot beat that.
    """
    frontiers = list(
        search(
            Bigrams(SHORT), BigramState(torch.arange(1)), row_limits([9]), beam(2, length_penalty), [SuppressTokens()]
        )
    )
    assert len(frontiers) == steps
    assert token_ids(frontiers[-1].hypotheses) == [[A, B, EOS], second]


def test_rows_without_an_end_are_cut_at_the_limit() -> None:
    table: BigramTable = {BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}}
    last = search_table(table, Beam(2), 2)
    assert trim_ids(last).tolist() == [[BOS, A, A], [BOS, B, A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.42, 0.24])
    assert last.cut.all()
    assert not last.ended.any()


def test_ended_rows_rank_before_more_probable_cut_rows() -> None:
    continuing = {A: 0.6, B: 0.39, EOS: 0.01}
    last = search_table({BOS: {A: 0.8, EOS: 0.2}, A: continuing, B: continuing}, Beam(2), 2)
    assert token_ids(last) == [[EOS], [A, A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.2, 0.48])
    assert last.cut.tolist() == [False, True]


def test_a_row_that_ends_at_the_limit_is_not_cut() -> None:
    last = search_table(SHORT, Beam(2), 1)
    assert token_ids(last) == [[B, EOS], [A]]
    assert last.log_probability.exp().tolist() == pytest.approx([0.15, 0.6])
    assert last.cut.tolist() == [False, True]


def test_rows_without_allowed_tokens_have_no_hypothesis() -> None:
    rules = [SuppressTokens(), SuppressTokens(TEXT_TOKENS)]
    frontiers = list(search(Bigrams(SHORT, SHORT), BigramState(torch.arange(2)), row_limits([9, 9]), Beam(3), rules))
    assert len(frontiers) == 1
    assert token_ids(frontiers[0].hypotheses)[::3] == [[EOS], [EOS]]
    assert frontiers[0].hypotheses.log_probability.tolist() == pytest.approx([math.log(0.1), NEG_INF, NEG_INF] * 2)


def test_a_suppressed_eos_finishes_no_row() -> None:
    """The beam has more rows than allowed tokens, so eos is among the candidates with probability 0."""
    rules = [SuppressTokens(), SuppressTokens((EOS,))]
    *_, last = (
        each.hypotheses
        for each in search(Bigrams(SHORT), BigramState(torch.arange(1)), row_limits([1]), Beam(8), rules)
    )
    assert not last.ended.any()
    assert last.log_probability.isfinite().sum() == len(TEXT_TOKENS)
    assert sorted(token_ids(last)[:3]) == [[token] for token in TEXT_TOKENS]


def test_a_finished_sentence_does_not_change_during_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)  # no sentence is removed
    tables = Bigrams(SILENT, {BOS: {A: 0.6, B: 0.4}, A: {A: 0.7, B: 0.3}, B: {A: 0.6, B: 0.4}})
    frontiers = list(search(tables, BigramState(torch.arange(2)), row_limits([1, 8]), Beam(2), [SuppressTokens()]))
    done = [select_sentence(each.hypotheses, 0, 2) for each in frontiers[1:]]
    assert len(done) == 8
    for each in done:
        assert token_ids(each) == token_ids(done[0])
        assert torch.equal(each.log_probability, done[0].log_probability)
        assert torch.equal(each.ended, done[0].ended)
        assert torch.equal(each.cut, done[0].cut)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_removing_finished_sentences_changes_no_result(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [n % 12 for n in range(40)]
    network = Trees()
    removed = search_steps(strategy, limits, network)
    assert network.rows[0] == 40 * strategy.width
    assert network.rows[-1] < 10 * strategy.width
    assert all(rows % strategy.width == 0 for rows in network.rows)
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)
    kept = search_steps(strategy, limits)
    assert len(removed) == len(kept)
    for one, other in zip(removed, kept, strict=True):
        for name in ("length", "log_probability", "penalty", "ended", "cut"):
            assert torch.equal(getattr(one.hypotheses, name), getattr(other.hypotheses, name))
        assert token_ids(one.hypotheses) == token_ids(other.hypotheses)


@pytest.mark.parametrize("stop", get_args(Stop))
@pytest.mark.parametrize("free_end", [False, True], ids=["end", "free"])
def test_checking_for_ended_rows_on_the_host_changes_no_result(
    stop: Stop, free_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, limits = Beam(3, stop=stop, free_end=free_end), [0, 2, 5, 9]
    on_host = search_steps(strategy, limits)
    monkeypatch.setattr("attendo.decode.beam.is_on_host", lambda _: False)
    off_host = search_steps(strategy, limits)
    assert len(on_host) == len(off_host)
    for one, other in zip(on_host, off_host, strict=True):
        zip_tensors(one, other, assert_equal)


def test_is_on_host_is_false_on_other_devices_and_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_on_host(torch.ones(1))
    assert not is_on_host(torch.ones(1, device="meta"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not is_on_host(torch.ones(1))


def assert_equal(one: Tensor, other: Tensor) -> Tensor:
    assert torch.equal(one, other)
    return one


@pytest.mark.parametrize("width", [0, -1])
def test_a_beam_width_below_one_is_rejected(width: int) -> None:
    with pytest.raises(UsageError, check=has_code("beam_width_below_one", width=width)):
        Beam(width)


def test_rules_apply_to_every_row() -> None:
    forbidden = [SuppressTokens(), SuppressTokens((A,))]
    *_, last = (
        each.hypotheses for each in search(Trees(), TreeState.start(*range(9)), row_limits([5] * 9), Beam(4), forbidden)
    )
    real = last.log_probability != NEG_INF
    assert real.sum() > 20
    assert not (last.ids[real] == A).any()


def test_rules_receive_the_tokens_of_their_rows() -> None:
    """No token twice in succession: the forbidden token depends on the last token of each row."""

    class NoRepeat(Rule):
        def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
            return log_probs.scatter(1, frontier.last, NEG_INF)

    rules = [SuppressTokens(), NoRepeat()]
    *_, last = (
        each.hypotheses for each in search(Trees(), TreeState.start(*range(12)), row_limits([3, 8] * 6), Beam(4), rules)
    )
    for ids, reported in zip(token_ids(last), last.log_probability.tolist(), strict=True):
        assert reported == NEG_INF or all(one != other for one, other in pairwise(ids))
